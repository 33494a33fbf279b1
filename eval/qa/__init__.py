"""Systems that rank the candidates of questions."""
