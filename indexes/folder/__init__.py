"""The store that is a folder on this machine."""
