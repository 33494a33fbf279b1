"""`retriever eval`."""
