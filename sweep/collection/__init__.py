"""What a person brings: documents, queries and relevance labels."""
