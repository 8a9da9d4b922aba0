"""How a run computes, not what: precision, CUDA graphs, several processes."""
