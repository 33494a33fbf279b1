"""Questions with passages to rank: one model of them, and readers of the forms they come in."""
