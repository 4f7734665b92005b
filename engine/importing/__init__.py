"""Material from files: tables, tasks, gold items, ready-made responses, past votes, whole experiments.

A table goes one way: `reading_process` → `table_files`, `nested_rows` → `mapping` → `items` or `votes`. Each
row's fault is collected. What cannot be read raises `rows.ImportingError`, which names every place.
"""
