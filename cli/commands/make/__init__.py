"""`retriever make`."""
