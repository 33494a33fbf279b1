"""Questions with passages to rank, in the forms they are published in."""
