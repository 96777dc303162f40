"""What the rest of the product asks of the knowledge base: `knowledge.services.search.search`."""
