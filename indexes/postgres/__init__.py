"""The store that is a PostgreSQL database with pgvector (docs/how-to/other-stores.md).

Importing a module of this package imports psycopg, the extra `postgres`.
"""
