"""`retriever train` and `retriever fit`."""
