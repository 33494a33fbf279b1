"""`retriever tune`."""
