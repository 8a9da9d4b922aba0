"""The miner for pytorch-metric-learning: its triplets, its losses, memories, state, and the controller that adapts it."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses
from pytorch_metric_learning.utils.distributed import DistributedMinerWrapper

from pads.adapters import AdaptiveController, AdaptiveMiner, RuleMiner, TripletSampler
from pads.curricula import CURRICULA
from pads.errors import UserError
from pads.pml.losses import WITHOUT_TUPLES, is_named
from pads.pml.names import their_parts
from pads.sampling import NEGATIVE_RULES

every_rule = pytest.mark.parametrize("rule", NEGATIVE_RULES)
LOSSES = {name: kind for name, kind in their_parts("losses", prefix="").items() if is_named(name)}
TUPLE_LOSSES = [name for name in LOSSES if name not in WITHOUT_TUPLES]
NEARBY = {"interval": [0.1, 1.9], "initial": "uniform"}


def references(batch, generator, num=64):
    """Other images of the same classes."""
    embeddings, labels = batch
    order = torch.randint(len(labels), (num,), generator=generator)
    moved = embeddings[order] + 0.3 * torch.randn(num, embeddings.shape[1], generator=generator)
    return moved, labels[order]


def valid(tuples, labels, ref_labels):
    anchors, positives, negatives = tuples
    assert len(anchors) == len(positives) == len(negatives)
    assert all(index.dtype == torch.long for index in tuples)
    assert (labels[anchors] == ref_labels[positives]).all()
    assert (labels[anchors] != ref_labels[negatives]).all()


# -- what it draws ------------------------------------------------------------------------------------------------------


def test_any_curriculum_can_be_mined_by(batch):
    needs_a_run = ("replayed", "last distribution")
    for name in CURRICULA:
        if name not in needs_a_run:
            valid(AdaptiveMiner(name)(*batch), batch[1], batch[1])


def joint_law(rule, embeddings, labels):
    """p(positive, negative | anchor): each other image of the class alike, then by the weights that the rule gives."""
    distance = torch.cdist(embeddings.double(), embeddings.double()).float()
    same, number = labels[:, None] == labels[None, :], len(labels)
    law_BBB = torch.zeros(number, number, number, dtype=torch.float64)
    others = torch.stack([torch.tensor([j for j in range(number) if same[i, j] and j != i]) for i in range(number)])
    for positives in others.T:
        weights = rule(distance, ~same, positives).double()
        weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, (~same).double())  # none is suitable: any
        law_BBB[torch.arange(number), positives] = weights / weights.sum(1, keepdim=True) / others.shape[1]
    return law_BBB


@pytest.mark.parametrize("place", ["in the batch", "among references"])
@every_rule
def test_who_is_drawn_with_whom_follows_the_weights_of_the_rule(rule, place, batch):
    """Pearson's chi-square over anchor, positive and negative together: the right shares of each alone do not suffice."""
    embeddings, labels = (rows.unflatten(0, (8, 4))[:5, :3].flatten(0, 1) for rows in batch)
    num_draws, miner = 600, RuleMiner(rule, seed=1)
    if place == "in the batch":
        draws = [miner(embeddings, labels) for _ in range(num_draws)]
    else:
        many = 100
        rows = embeddings.repeat(many, 1), labels.repeat(many)
        draws = [miner(*rows, embeddings.clone(), labels) for _ in range(num_draws // many)]
    anchors, positives, negatives = (torch.cat(column) for column in zip(*draws, strict=True))
    cells = (anchors % len(labels), positives, negatives)
    counts = torch.zeros(15, 15, 15, dtype=torch.float64)
    counts.index_put_(cells, torch.ones(len(anchors), dtype=torch.float64), accumulate=True)
    expected = num_draws * joint_law(miner.sampler.curriculum.rule, embeddings, labels)
    assert (counts[expected == 0] == 0).all()
    assert counts.sum() == expected.sum().round() == 15 * num_draws
    # the rare cells of an anchor are one cell, since the chi-square wants some five draws in each
    rare = expected < 5
    observed, wanted = (torch.cat([x[~rare], (x * rare).sum((1, 2))]) for x in (counts, expected))
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 15
    assert ((observed - wanted) ** 2 / wanted).sum() <= freedom + 4 * (2 * freedom) ** 0.5


def test_a_batch_without_a_triplet_costs_nothing(batch):
    embeddings = batch[0][:6].clone().requires_grad_()
    for lonely in (torch.zeros(6).long(), torch.arange(6)):
        empty = RuleMiner("random")(embeddings, lonely)
        assert [len(index) for index in empty] == [0, 0, 0]
        loss = losses.TripletMarginLoss()(embeddings, lonely, empty)
        loss.backward()
        assert loss == 0


labels_of = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    labels_of,
    labels_of,
    st.sampled_from(sorted(NEGATIVE_RULES)),
    st.integers(0, 99),
    st.sampled_from(["the batch", "others", "the batch, then others"]),
)
def test_whatever_the_labels_exactly_the_anchors_that_can_have_a_triplet_get_one(labels, others, rule, seed, among):
    """In a memory, the references are the batch and then others."""
    generator = torch.Generator().manual_seed(seed)
    embeddings, ref_emb = (torch.randn(len(rows), 5, generator=generator) for rows in (labels, others))
    labels, ref_labels = torch.tensor(labels), torch.tensor(others)
    if among == "the batch":
        tuples, ref_labels = RuleMiner(rule, seed=seed)(embeddings, labels), labels
    else:
        if among == "the batch, then others":
            ref_emb, ref_labels = torch.cat([embeddings, ref_emb]), torch.cat([labels, ref_labels])
        tuples = RuleMiner(rule, seed=seed)(embeddings, labels, ref_emb, ref_labels)
    valid(tuples, labels, ref_labels)
    here = ref_labels.tolist()
    enough = 2 if among == "the batch" else 1
    expected = [a for a, label in enumerate(labels.tolist()) if here.count(label) >= enough and set(here) - {label}]
    assert tuples[0].tolist() == expected
    if among != "others":
        alone = [a for a in expected if here.count(labels[a]) == 1]
        assert [a for a, p in zip(*(index.tolist() for index in tuples[:2]), strict=True) if a == p] == alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_anchor_among_the_references_is_not_its_own_positive_nor_negative(batch, dtype):
    """As under a memory or efficient=True, where the references begin with the batch itself; some come twice."""
    rows, labels = (3 * batch[0]).to(dtype), batch[1]
    ref_emb, ref_labels = torch.cat([rows, rows.flip(0)])[:40], torch.cat([labels, labels.flip(0)])[:40]
    miner = AdaptiveMiner(negatives_from="all but the anchor")
    for _ in range(5):
        a, p, n = miner(rows, labels, ref_emb.clone(), ref_labels)
        assert len(a) == 32
        assert (a != p).all() and (a != n).all()


def test_a_class_that_has_collapsed_among_the_references_still_gives_triplets(batch):
    embeddings, labels = batch
    collapsed = embeddings[::4].repeat_interleave(4, 0)
    a, p, n = AdaptiveMiner()(collapsed, labels, collapsed.clone(), labels)
    assert len(a) == 32
    valid((a, p, n), labels, labels)


def test_self_regularisation_and_rho_reach_the_draw(batch, generator):
    embeddings, labels = batch
    n = AdaptiveMiner(options={"bins": NEARBY}, negatives_from="all but the anchor")(embeddings, labels)[2]
    assert (labels == labels[n]).any()
    a, p, n = RuleMiner("random", rho=1.0)(embeddings, labels)
    assert torch.equal(a, p)
    assert (labels[a] == labels[n]).all()
    ref_emb, ref_labels = references(batch, generator)
    valid(RuleMiner("random", rho=1.0)(embeddings, labels, ref_emb, ref_labels), labels, ref_labels)  # nobody is there


def test_half_precision_and_autocast_draw_as_float32_does(batch):
    embeddings, labels = batch
    exact = embeddings.bfloat16().float()
    expected = AdaptiveMiner()(exact, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for rows in (exact, exact.bfloat16()):
            assert all(torch.equal(a, b) for a, b in zip(AdaptiveMiner()(rows, labels), expected, strict=True))


# -- their losses and memories --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")
@pytest.mark.parametrize("name", TUPLE_LOSSES)
def test_every_tuple_loss_of_theirs_learns_from_it(name, batch):
    embeddings, labels = batch
    embeddings = embeddings.clone().requires_grad_()
    loss = LOSSES[name]()(embeddings, labels, AdaptiveMiner()(embeddings, labels))
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.abs().sum() > 0


@pytest.mark.parametrize("memory_size", [32, 50, 128])
def test_as_the_miner_of_a_cross_batch_memory_no_index_is_out_of_bounds_and_no_anchor_is_lost(memory_size, generator):
    """Also while the memory fills up, and where the batch goes over its end."""
    memory = losses.CrossBatchMemory(losses.TripletMarginLoss(), 16, memory_size=memory_size, miner=AdaptiveMiner())
    seen, used = [], []
    mine, cost = memory.miner.forward, memory.loss.forward
    memory.miner.forward = lambda e, y, r, ry: seen.append((mine(e, y, r, ry), y, ry.clone())) or seen[-1][0]
    memory.loss.forward = lambda e, y, t, r, ry: used.append(len(t[0])) or cost(e, y, t, r, ry)
    for step in range(8):
        labels = torch.arange(20 + step) % 6
        embeddings = torch.randn(len(labels), 16, generator=generator, requires_grad=True)
        loss = memory(embeddings, labels)
        loss.backward()
        assert loss.isfinite()
        tuples, labels, ref_labels = seen[-1]
        valid(tuples, labels, ref_labels)
        assert used[-1] == len(tuples[0]) == len(labels)
    assert max(index.max() for index in tuples[1:]) >= 20


# -- state ----------------------------------------------------------------------------------------------------------------


def validation(seed, num_classes=8):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_classes).repeat_interleave(5)
    images = torch.randn(num_classes, 16, generator=generator)[labels] + torch.randn(
        len(labels), 16, generator=generator
    )
    return list(zip(images.split(16), labels.split(16), strict=True))


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("curriculum", ["learned", "distance-weighted", "non-linear", "random actions"])
def test_a_loaded_state_goes_on_bit_for_bit(curriculum, batch):
    embeddings, labels = batch
    network = torch.nn.Identity()
    miner = AdaptiveMiner(curriculum, seed=3)
    for done in (0, 1, 5):
        for step in range(done):
            miner(embeddings, labels)
            AdaptiveController(miner, every=2, num_steps=40).step(network, validation(step))
        resumed = AdaptiveMiner(curriculum, seed=3)
        resumed.load_state_dict(through_a_file(miner.state_dict()))
        for step in range(4):
            ours, theirs = miner(embeddings, labels), resumed(embeddings, labels)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
            logs = [
                AdaptiveController(m, every=2, num_steps=40).step(network, validation(step)) for m in (miner, resumed)
            ]
            assert logs[0] == logs[1]
        assert str(miner.state_dict()) == str(resumed.state_dict())


def test_the_miner_is_saved_with_the_module_it_is_part_of(batch):
    module, fresh = (torch.nn.ModuleDict({"miner": AdaptiveMiner(seed=seed)}) for seed in (1, 1))
    AdaptiveController(module["miner"], every=1).step(torch.nn.Identity(), validation(0))
    fresh.load_state_dict(through_a_file(module.state_dict()))
    assert torch.equal(fresh["miner"].bin_probs, module["miner"].bin_probs)
    assert not torch.equal(fresh["miner"].bin_probs, AdaptiveMiner().bin_probs)


def test_draws_follow_the_seed_and_leave_the_callers_random_state_alone(batch):
    before = torch.get_rng_state()
    first, same, other = (AdaptiveMiner(seed=seed) for seed in (1, 1, 2))
    draws = [[torch.cat(miner(*batch)) for _ in range(2)] for miner in (first, same, other)]
    assert all(map(torch.equal, draws[0], draws[1]))
    assert not torch.equal(draws[0][0], draws[2][0])
    assert not torch.equal(draws[0][0], draws[0][1])
    assert torch.equal(torch.get_rng_state(), before)


def test_recordables_are_theirs_and_ours(batch):
    embeddings, labels = batch
    quiet, told = AdaptiveMiner(), AdaptiveMiner(collect_stats=True, negatives_from="all but the anchor", rho=0.5)
    quiet(embeddings, labels)
    a, _, n = told(embeddings, labels)
    assert not hasattr(quiet, "mean_neg_dist")
    assert {"mean_neg_dist", "frac_self_pairs", "num_triplets"} <= set(told._record_these_stats)
    assert told.num_triplets == 32
    assert told.mean_neg_dist == pytest.approx((embeddings[a] - embeddings[n]).norm(dim=1).mean().item(), rel=1e-4)
    assert told.frac_self_pairs == pytest.approx((labels[a] == labels[n]).float().mean().item())
    assert "bin_probs" in told._record_these
    assert told.bin_probs.sum().item() == pytest.approx(1)
    assert RuleMiner("random").bin_probs is None


# -- the controller ---------------------------------------------------------------------------------------------------------


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        self.modes = []

    def forward(self, images):
        self.modes.append((self.training, torch.is_grad_enabled()))
        return self.layers(images)


def test_the_controller_touches_neither_the_model_nor_the_random_state():
    network = Network()
    network.layers[1].eval()  # frozen by hand
    optimiser = torch.optim.Adam(network.parameters())
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    data = torch.utils.data.TensorDataset(*(torch.cat(parts) for parts in zip(*validation(0), strict=True)))
    shuffled = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    before = torch.get_rng_state()
    assert AdaptiveController(AdaptiveMiner(), every=1).step(network, shuffled)["reward"] is None
    assert set(network.modes) == {(False, False)}
    assert [network.training, network.layers[1].training, network.layers[2].training] == [True, False, True]
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())
    assert optimiser.state_dict()["state"] == {}
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_controller_adapts_every_m_steps_and_changes_the_bins():
    miner = AdaptiveMiner()
    controller = AdaptiveController(miner, every=3, num_steps=12)
    before = miner.bin_probs
    logs = [controller.step(Network(), validation(0)) for _ in range(12)]
    assert [log is not None for log in logs] == [False, False, True] * 4
    assert not torch.equal(miner.bin_probs, before)
    assert logs[-1]["reward"] in (-1, 0, 1)
    assert {"recall@1", "nmi", "distribution", "perplexity"} <= logs[-1].keys()


def test_what_the_policy_is_rewarded_for_is_measured_on_unit_vectors():
    """As the losses and miners of theirs measure by default."""
    miners = [AdaptiveMiner(), AdaptiveMiner()]
    scale = torch.linspace(0.1, 9, 16)[:, None]
    stretched = [(images * scale[: len(images)], labels) for images, labels in validation(0)]
    logs = [
        AdaptiveController(miner, every=1).step(torch.nn.Identity(), data)
        for miner, data in zip(miners, (validation(0), stretched), strict=True)
    ]
    assert logs[0]["recall@1"] == logs[1]["recall@1"]
    assert logs[0]["nmi"] == logs[1]["nmi"]


def test_a_curriculum_that_asks_for_no_validation_needs_no_loader():
    miner = AdaptiveMiner("linear")
    AdaptiveController(miner, every=1, num_steps=2).step(torch.nn.Identity(), None)
    assert not torch.equal(miner.bin_probs, AdaptiveMiner("linear").bin_probs)


def test_a_controller_finds_the_miner_in_what_wraps_it():
    miner = AdaptiveMiner()
    memory = losses.CrossBatchMemory(losses.TripletMarginLoss(), 16, miner=miner)
    for wrapper in (miner, miner.sampler, memory, DistributedMinerWrapper(miner)):
        assert AdaptiveController(wrapper).sampler is miner.sampler


def test_batches_of_open_metric_learning_are_understood():
    as_dicts = [{"input_tensors": images, "labels": labels, "idx": labels} for images, labels in validation(0)]
    with_more = [(images, labels, "path") for images, labels in validation(0)]
    logs = [
        AdaptiveController(TripletSampler(), every=1).step(torch.nn.Identity(), data)
        for data in (validation(0), as_dicts, with_more)
    ]
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda: AdaptiveMiner("lerned"), "there is no curriculum 'lerned'; did you mean learned"),
        (lambda: AdaptiveMiner(options={"agnt": "ppo"}), "did you mean curriculum.options.agent"),
        (lambda: AdaptiveMiner("pml:BatchHardMiner"), "is a miner already"),
        (lambda: AdaptiveMiner(negatives_from="everywhere"), "negatives_from is 'everywhere': choose one of"),
        (lambda: AdaptiveMiner(rho=2), "rho is 2"),
        (lambda: AdaptiveMiner(distance=distances.CosineSimilarity()), "leave out distance, or give LpDistance"),
        (lambda: AdaptiveMiner(distance=distances.LpDistance(power=2)), "leave out distance, or give LpDistance"),
        (lambda: RuleMiner("learned"), "there is no rule 'learned'"),
        (
            lambda: AdaptiveMiner().load_state_dict(RuleMiner("random").state_dict()),
            "the state is that of the curriculum 'random', and this sampler's is 'learned'",
        ),
        (lambda: AdaptiveController(torch.nn.Identity()), "such as AdaptiveMiner.., not Identity"),
        (lambda: AdaptiveController(AdaptiveMiner(), every=0), "must be at least 1"),
        (
            lambda: AdaptiveController(AdaptiveMiner("linear"), every=1).step(torch.nn.Identity(), None),
            "give the controller num_steps",
        ),
        (
            lambda: AdaptiveController(AdaptiveMiner(), every=1).step(torch.nn.Identity(), None),
            "give step.model, loader. a loader of held-out images",
        ),
        (
            lambda: AdaptiveController(AdaptiveMiner(), every=1).step(torch.nn.Identity(), [torch.ones(3)]),
            "must give batches of .images, labels.",
        ),
    ],
)
def test_mistakes_get_one_sentence(make, answer):
    with pytest.raises(UserError, match=answer):
        make()


def test_labels_that_do_not_fit_are_refused(batch):
    with pytest.raises(
        UserError, match=r"a sampler takes embeddings \(B, D\) and labels \(B,\), not \(32, 16\) and \(3,\)"
    ):
        TripletSampler()(batch[0], batch[1][:3])


def test_a_miner_is_for_one_size_of_embedding(batch):
    miner = RuleMiner("distance-weighted")
    miner(*batch)
    with pytest.raises(UserError, match="embeddings had 16 dimensions and have 8 now"):
        miner(batch[0][:, :8], batch[1])
