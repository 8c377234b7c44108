"""Systems of the field that have no model here, each with the reason, the nearest that has one, and its source."""

NOT_MODELLED: dict[str, str] = {
    "SkipPipe": (
        "micro-batches skip stages and pass them in another order, so that a batch costs fewer FLOP than the job "
        "says; swarm without skipping is the nearest (Blagoev et al. 2025, arXiv 2502.19913)"
    ),
    "GWTF": (
        "routes micro-batches by a decentralised min-cost flow while volunteers come and go, and networks here do not "
        "change in an iteration; swarm is the nearest (Blagoev et al. 2025, arXiv 2509.21221)"
    ),
    "FusionLLM": (
        "cuts a graph of operators over clusters of like bandwidth and compresses the slowest links by top-K, each "
        "link otherwise; a job has one compression for all (Tang et al. 2024, arXiv 2410.12707)"
    ),
    "CocktailSGD": (
        "data parallelism with random and top-K sparsification and quantisation, up to 117 times fewer bytes; of "
        "jobs' compressions int8 is the strongest, as in ddp-compressed (Wang et al., ICML 2023)"
    ),
    "DreamDDP": (
        "local updates that average layers at scheduled iterations beneath the backward; streaming-diloco with equal "
        "fragments is the nearest (Tang et al. 2025, arXiv 2502.11058)"
    ),
    "Holmes": (
        "pipelines across clusters and data parallelism inside, on each cluster's own kind of network card; sailor "
        "places likewise, cards that do not speak to each other have no model (Yang et al., ICPP 2024)"
    ),
    "Ravnest": (
        "clusters of PCs run pipelines without a flush on stale parameters and average now and then; diloco with "
        "pipelines is the nearest, staleness has no model (Menon et al. 2024, arXiv 2401.01728)"
    ),
    "SDPipe": (
        "replicas that are ready average in groups that a scheduler forms in passing, others later; averages here are "
        "of all replicas (Miao et al., VLDB 2023)"
    ),
    "UniAP": (
        "an integer program chooses parallelism layer by layer, on like GPUs; jobs have one choice for all layers, "
        "which megatron's grids and the lab's own search go through (Lin et al., CVPR 2025)"
    ),
    "Helix": (
        "serves models over unequal GPUs by max-flow, and trains none (Mei et al., ASPLOS 2025, arXiv 2406.01566)"
    ),
    "HSDP": (
        "FSDP within each host and gradients averaged across hosts: a job's replicas split their states over all of "
        "them or not at all, so shards of a part of them have no model; fsdp, and megatron with tensor parallelism in "
        "a host, are the nearest (Zhao et al., VLDB 2023)"
    ),
    "HexiScale": (
        "pipelines of unequal length and stages of unequal tensor parallelism; a plan here is a rectangle. sailor, "
        "and the lab's own search with unequal cuts, are the nearest (Yan et al. 2024, arXiv 2409.01143)"
    ),
    "CrossPipe": (
        "a solver's pipeline schedule for the latency between data centres; the lab's own search chooses among "
        "schedules, adaptive-1f1b among them, for the same end (Chen et al., ATC 2025, arXiv 2507.00217)"
    ),
    "Petals": (
        "serves and fine-tunes over volunteers' blocks and trains no model whole; swarm has its routing (Borzunov et "
        "al., ACL 2023 demonstrations, arXiv 2209.01188)"
    ),
    "hivemind": (
        "a library, on which SWARM was built: ask for swarm, or for ddp-compressed with averages of a whole model "
        "(Ryabinin and Gusev, NeurIPS 2020, arXiv 2002.04013)"
    ),
}
