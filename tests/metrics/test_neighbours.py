import faiss
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from pads.errors import UserError
from pads.metrics.neighbours import largest, nearest_neighbours

torch.set_num_threads(1)


def random_embeddings(num_images, dimension=16, seed=0):
    return torch.randn(num_images, dimension, generator=torch.Generator().manual_seed(seed))


def naive_neighbours(embeddings_ND, k, is_query_N, is_gallery_N):
    rows = []
    for query in range(len(embeddings_ND)):
        if is_query_N[query]:
            others = [i for i in range(len(embeddings_ND)) if is_gallery_N[i] and i != query]
            rows.append(sorted(others, key=lambda i: float((embeddings_ND[query] - embeddings_ND[i]).norm()))[:k])
    return rows


@pytest.mark.parametrize("num_images, k", [(50, 5), (700, 1), (700, 8), (700, 40), (2003, 3)])
def test_neighbours_are_those_of_scikit_learn_and_faiss(num_images, k):
    embeddings_ND = random_embeddings(num_images)
    found_NK = nearest_neighbours(embeddings_ND, k)
    oracle = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(embeddings_ND.double().numpy())
    assert found_NK.tolist() == oracle.kneighbors(return_distance=False).tolist()
    index = faiss.IndexFlatL2(embeddings_ND.shape[1])
    index.add(embeddings_ND.numpy())
    assert found_NK.tolist() == index.search(embeddings_ND.numpy(), k + 1)[1][:, 1:].tolist()


def test_all_others_come_in_the_order_of_their_distance():
    embeddings_ND = random_embeddings(300)
    found_NK = nearest_neighbours(embeddings_ND, 299)
    distances_NK = torch.cdist(embeddings_ND.double(), embeddings_ND.double()).gather(1, found_NK)
    assert (distances_NK.diff(dim=1) > -1e-5).all()  # 90,000 distances: some differ by less than float32 can tell
    assert torch.equal(found_NK.sort(dim=1).values[0], torch.arange(1, 300))


def test_the_length_of_an_embedding_matters_as_euclidean_distance_says():
    embeddings_ND = torch.tensor([[1.0, 0.0], [10.0, 0.0], [0.9, 0.9]])
    assert nearest_neighbours(embeddings_ND, 2).tolist() == [[2, 1], [0, 2], [0, 1]]


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 333, 10_000])
def test_the_chunk_size_changes_nothing(chunk_size):
    embeddings_ND = random_embeddings(333)
    expected = nearest_neighbours(embeddings_ND, 10)
    assert torch.equal(nearest_neighbours(embeddings_ND, 10, chunk_size=chunk_size), expected)


@pytest.mark.parametrize("share_query, share_gallery", [(0.3, 0.5), (0.9, 0.9), (1.0, 0.2), (0.1, 1.0)])
def test_flags_choose_who_asks_and_who_is_found(share_query, share_gallery):
    embeddings_ND = random_embeddings(120)
    generator = torch.Generator().manual_seed(1)
    is_query_N = torch.rand(120, generator=generator) < share_query
    is_gallery_N = torch.rand(120, generator=generator) < share_gallery
    found_QK = nearest_neighbours(embeddings_ND, 6, is_query_N=is_query_N, is_gallery_N=is_gallery_N, chunk_size=11)
    assert found_QK.tolist() == naive_neighbours(embeddings_ND, 6, is_query_N, is_gallery_N)


def test_disjoint_queries_may_find_the_whole_gallery():
    embeddings_ND = random_embeddings(30)
    is_query_N = torch.arange(30) < 10
    found_QK = nearest_neighbours(embeddings_ND, 99, is_query_N=is_query_N, is_gallery_N=~is_query_N)
    assert found_QK.tolist() == naive_neighbours(embeddings_ND, 20, is_query_N, ~is_query_N)
    assert found_QK.shape == (10, 20)


def test_k_is_capped_at_the_other_images():
    assert nearest_neighbours(random_embeddings(5), 100).shape == (5, 4)


def test_no_image_finds_itself_even_among_copies():
    embeddings_ND = random_embeddings(1).repeat(200, 1)
    found_NK = nearest_neighbours(embeddings_ND, 7)
    assert not (found_NK == torch.arange(200)[:, None]).any()
    assert all(len(set(row)) == 7 for row in found_NK.tolist())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 1000), st.booleans())
def test_largest_is_a_sort_cut_short(num_columns, k, seed, with_ties):
    k = min(k, num_columns)
    scores_QG = torch.randn(3, num_columns, generator=torch.Generator().manual_seed(seed))
    if with_ties:
        scores_QG = scores_QG.round()
    columns_QK = largest(scores_QG, k)
    assert torch.equal(scores_QG.gather(1, columns_QK), scores_QG.sort(dim=1, descending=True).values[:, :k])
    assert all(len(set(row)) == k for row in columns_QK.tolist())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_compared_in_float32(dtype):
    embeddings_ND = random_embeddings(100).to(dtype)
    assert torch.equal(nearest_neighbours(embeddings_ND, 5), nearest_neighbours(embeddings_ND.float(), 5))


def test_the_memory_beyond_the_result_is_bounded_by_the_chunk():
    largest_tensor = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest_tensor
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest_tensor = max(largest_tensor, out.untyped_storage().nbytes())
            return out

    embeddings_ND = random_embeddings(2000)
    with Watch():
        nearest_neighbours(embeddings_ND, 4, chunk_size=10)
    assert largest_tensor <= max(10 * 2000 * 4, 2000 * 16 * 4)  # a chunk's scores, or the embeddings


def test_what_cannot_be_answered_is_refused():
    embeddings_ND = random_embeddings(4)
    nobody, everybody = torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)
    with pytest.raises(UserError, match="is_query_N marks no image"):
        nearest_neighbours(embeddings_ND, 1, is_query_N=nobody)
    with pytest.raises(UserError, match="is_gallery_N marks no image"):
        nearest_neighbours(embeddings_ND, 1, is_gallery_N=nobody)
    with pytest.raises(UserError, match="one bool per image"):
        nearest_neighbours(embeddings_ND, 1, is_query_N=everybody[:3])
    with pytest.raises(UserError, match="one bool per image"):
        nearest_neighbours(embeddings_ND, 1, is_query_N=everybody.long())
    with pytest.raises(UserError, match="at least two images"):
        nearest_neighbours(embeddings_ND[:1], 1)
