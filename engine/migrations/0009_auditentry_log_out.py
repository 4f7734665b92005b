from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engine', '0008_experiment_say_what_a_tie_is'),
    ]

    operations = [
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('create', 'Created'), ('edit', 'Edited'), ('start', 'Started'), ('pause', 'Paused'), ('resume', 'Resumed'), ('stop', 'Stopped'), ('stop_on', 'Stopped on a claim'), ('conclude', 'Concluded'), ('reopen', 'Reopened'), ('budget', 'Budget changed'), ('claim', 'Claim changed'), ('delta', 'Risk δ changed'), ('epsilon', 'Margin ε changed'), ('void', 'Judgments voided'), ('restore', 'Judgments restored'), ('archive', 'Archived'), ('unarchive', 'Taken out of the archive'), ('clone', 'Cloned'), ('invite', 'Invited'), ('mail_invitation', 'Invitation e-mailed'), ('end_invitation', 'Invitation ended'), ('join', 'Joined'), ('add', 'Member added'), ('role', 'Role changed'), ('remove', 'Member removed'), ('token_made', 'Token made'), ('token_revoked', 'Token revoked'), ('sign_out', 'Logged out everywhere'), ('reset_link', 'Password link made'), ('export', 'Exported'), ('import_votes', 'Past votes imported'), ('llm_judge', 'Language model as a judge changed'), ('delete', 'Draft deleted'), ('forget', 'Person forgotten'), ('llm_halted', 'Language model as a judge halted'), ('subscribe', 'Notification added'), ('unsubscribe', 'Notification removed'), ('share', 'Report shared'), ('end_share', 'Shared report ended'), ('remarks_done', 'Flags and comments done')], max_length=20),
        ),
    ]
