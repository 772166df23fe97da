"""What is loaded: datasets, samplers, fetchers, collation. Knows nothing of processes or queues.

sampler -> keys -> fetcher(dataset) -> samples -> collate_fn -> batch
"""
