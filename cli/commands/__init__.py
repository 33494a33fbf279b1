"""The commands, one per file; a group is a folder."""
