"""Shards: what an index needs of a corpus, encoded before there is one, by any number of processes.

::

    shards/
      plan.json            what all shards have in common, and how many there are once all are made
      000000.safetensors   documents, passages, vectors and terms of one stretch of the corpus
      000001.safetensors   ...

A shard appears complete or not at all, whoever makes it, and making it again gives the same one.
So any scheduler can drive the work: `encode_shards` runs it in this process, in several, or on Ray.
"""
