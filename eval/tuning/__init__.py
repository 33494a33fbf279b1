"""`tune`: choosing the settings of a whole pipeline by questions."""
