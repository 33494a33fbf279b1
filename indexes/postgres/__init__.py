"""The store that is a PostgreSQL database with pgvector; docs/stores.md says how it is used.

Importing a module of this package imports psycopg, the extra `postgres`.
"""
