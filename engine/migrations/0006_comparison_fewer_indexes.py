import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engine', '0005_experiment_exclusive_proofs'),
    ]

    operations = [
        # Only the index goes. Django would make the foreign key anew too, which reads the whole table while
        # nobody else may use it.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'DROP INDEX IF EXISTS "engine_comparison_experiment_id_9e5e2b57"',
                    'CREATE INDEX "engine_comparison_experiment_id_9e5e2b57" ON "engine_comparison" ("experiment_id")',
                ),
            ],
            state_operations=[
                migrations.AlterField(
                    model_name='comparison',
                    name='experiment',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='comparisons', to='engine.experiment'),
                ),
            ],
        ),
    ]
