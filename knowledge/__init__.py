"""What is known: passages on the principles of training at scale, users' documents, and the retrieval over them."""
