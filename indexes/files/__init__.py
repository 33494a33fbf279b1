"""Arrays on disk, atomic writes and checksums."""
