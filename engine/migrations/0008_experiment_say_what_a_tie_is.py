from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engine', '0007_paircount_fewer_indexes'),
    ]

    operations = [
        migrations.AlterField(
            model_name='experiment',
            name='allow_both_bad',
            field=models.BooleanField(default=False, help_text='Offer “both are bad”; it counts like “equally good”.'),
        ),
        migrations.AlterField(
            model_name='experiment',
            name='allow_tie',
            field=models.BooleanField(default=False, help_text='Offer “equally good”: neither response wins.'),
        ),
    ]
