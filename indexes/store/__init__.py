"""The SQLite side of an index: connection, schema, documents, settings, the writer's lock."""
