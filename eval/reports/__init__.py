"""Reports as Markdown, LaTeX, JSON, CSV and figures."""
