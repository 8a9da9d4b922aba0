"""What every loss and miner of pytorch-metric-learning must do under our names: train, and go on from a checkpoint."""

import pytest
import torch

from pads.build import build_optimiser
from pads.config import Optimiser, Part
from pads.curricula import build_curriculum
from pads.losses import build_loss
from pads.pml.losses import WITHOUT_TUPLES, is_named
from pads.pml.miners import NOT_HERE as MINERS_NOT_HERE
from pads.pml.miners import mine_tuples
from pads.pml.names import their_parts
from pads.sampling import draw_triplets
from pads.sampling.rules import Random

pytestmark = [
    # of their own code: HistogramLoss indexes with a list, SphereFaceLoss gives a tensor to numpy
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
]
NEEDED = {"pml:RankedListLoss": {"margin": 0.4, "Tn": 4}}
GIVEN = {"num_classes": 8, "embedding_size": 16}
LOSSES = [name for name, kind in their_parts("losses").items() if is_named(kind.__name__)]
MINERS = [name for name in their_parts("miners") if name not in MINERS_NOT_HERE]
every_loss = pytest.mark.parametrize("name", LOSSES)
every_miner = pytest.mark.parametrize("name", MINERS)


def make(name, seed=0, **options):
    return build_loss(Part(name, {**NEEDED.get(name, {}), **options}), **GIVEN, seed=seed)


def learn(network, loss_fn, optimiser, batch, num_steps, rule, generator, draw=draw_triplets):
    """The losses of that many training steps."""
    inputs, labels = batch
    losses = []
    for _ in range(num_steps):
        embeddings = torch.nn.functional.normalize(network(inputs), dim=1)
        loss = loss_fn(embeddings, labels, draw(embeddings, labels, rule, generator=generator))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def trainer(loss_fn, rate=1e-2):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Linear(16, 16)
    options = Optimiser(learning_rate=rate, loss_learning_rate=rate)
    return network, build_optimiser(options, network, loss_fn)


def modes(name):
    return ("all",) if name.removeprefix("pml:") in WITHOUT_TUPLES else ("drawn", "all")


def test_there_are_dozens_of_them():
    assert len(LOSSES) >= 33
    assert len(MINERS) >= 9
    assert {"pml:" + name for name in WITHOUT_TUPLES} <= set(LOSSES)


@every_loss
def test_every_loss_trains_two_steps_and_moves_the_network_and_its_own_parameters(name, batch, generator):
    for triplets in modes(name):
        loss_fn = make(name, triplets=triplets)
        network, optimiser = trainer(loss_fn)
        before = [parameter.clone() for module in (network, loss_fn) for parameter in module.parameters()]
        losses = learn(network, loss_fn, optimiser, batch, 2, Random(), generator)
        assert torch.tensor(losses).isfinite().all()
        after = [parameter for module in (network, loss_fn) for parameter in module.parameters()]
        assert all(not torch.equal(a, b) for a, b in zip(before[:2], after[:2], strict=True))  # the network
        for a, b in zip(before[2:], after[2:], strict=True):
            assert b.requires_grad
            assert not torch.equal(a, b)


@every_loss
def test_every_loss_goes_on_from_a_file_bit_for_bit(name, batch, round_trip):
    for triplets in modes(name):
        loss_fn = make(name, triplets=triplets)
        network, optimiser = trainer(loss_fn)
        learn(network, loss_fn, optimiser, batch, 2, Random(), torch.Generator().manual_seed(1))
        resumed = make(name, seed=0, triplets=triplets)
        resumed_network, resumed_optimiser = trainer(resumed)
        pairs = ((resumed_network, network), (resumed, loss_fn), (resumed_optimiser, optimiser))
        for fresh, old in pairs:
            fresh.load_state_dict(round_trip(old.state_dict()))
        ran_on = learn(network, loss_fn, optimiser, batch, 2, Random(), torch.Generator().manual_seed(2))
        again = learn(resumed_network, resumed, resumed_optimiser, batch, 2, Random(), torch.Generator().manual_seed(2))
        assert again == ran_on


@every_loss
def test_the_seed_of_every_loss_is_all_the_chance_there_is(name, batch, generator):
    before = torch.get_rng_state()
    first, second, other = (make(name, seed=seed) for seed in (3, 3, 4))
    pairs = list(zip(first.parameters(), second.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in pairs)
    embeddings, labels = batch
    first(embeddings, labels, draw_triplets(embeddings, labels, Random(), generator=generator))
    assert torch.equal(torch.get_rng_state(), before)


@every_miner
def test_every_miner_trains_their_losses_and_ours_and_draws_by_the_runs_generator(name, batch):
    curriculum = build_curriculum(Part(name), dim=16, recall_at=(1,), seed=0)
    state = torch.get_rng_state()
    for loss_name in ("margin", "triplet", "pml:ContrastiveLoss", "pml:MultiSimilarityLoss", "pml:TripletMarginLoss"):
        runs = []
        for _ in range(2):
            loss_fn = build_loss(Part(loss_name), **GIVEN, seed=0)
            network, optimiser = trainer(loss_fn)
            generator = torch.Generator().manual_seed(7)
            runs.append(learn(network, loss_fn, optimiser, batch, 2, curriculum.rule, generator, mine_tuples))
        assert runs[0] == runs[1]
        assert torch.tensor(runs[0]).isfinite().all()
    assert torch.equal(torch.get_rng_state(), state)
    assert curriculum.metrics == ()
    assert curriculum.advance({}, 0.5) == {}
