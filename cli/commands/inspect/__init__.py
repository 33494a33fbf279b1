"""`retriever inspect`."""
