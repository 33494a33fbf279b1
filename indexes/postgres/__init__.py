"""The store that is a PostgreSQL database with pgvector (docs/reference/stores.md).

Importing a module of this package imports psycopg, the extra `postgres`.
"""
