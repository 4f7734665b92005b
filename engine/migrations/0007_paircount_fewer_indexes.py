import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engine', '0006_comparison_fewer_indexes'),
    ]

    operations = [
        # Only the indexes go. Django would make the foreign keys anew too, while nobody else may use the table.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'DROP INDEX IF EXISTS "engine_paircount_experiment_id_b1ba9d27"',
                    'CREATE INDEX "engine_paircount_experiment_id_b1ba9d27" ON "engine_paircount" ("experiment_id")',
                ),
                migrations.RunSQL(
                    'DROP INDEX IF EXISTS "engine_paircount_last_annotator_id_69b8441f"',
                    'CREATE INDEX "engine_paircount_last_annotator_id_69b8441f" ON "engine_paircount" ("last_annotator_id")',
                ),
            ],
            state_operations=[
                migrations.AlterField(
                    model_name='paircount',
                    name='experiment',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='pair_counts', to='engine.experiment'),
                ),
                migrations.AlterField(
                    model_name='paircount',
                    name='last_annotator',
                    field=models.ForeignKey(blank=True, db_index=False, help_text='Annotator who completed the last comparison of this pair: the next one goes rather to somebody else.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
                ),
            ],
        ),
    ]
