"""One index: the class `Index`, its reading half, and what the calls of one object share."""

from retriever.index.writing import Index as Index
