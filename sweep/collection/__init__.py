"""What a person brings: documents, queries and relevance labels."""

from sweep.collection.collection import Collection
from sweep.collection.health import Health, health
from sweep.collection.loading import CollectionSpec, load

__all__ = ["Collection", "CollectionSpec", "Health", "health", "load"]
