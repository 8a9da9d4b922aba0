"""The config and its two ways in: JSON and `--set a.b=c`. What does not fit is refused by its full name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest

from pads.check import check
from pads.config import (
    CHOSEN,
    AutoConfig,
    Config,
    Data,
    Network,
    Optimiser,
    Part,
    Sampling,
    build,
    call,
    drop_auto,
    fits,
    from_dict,
    from_json,
    from_values,
    lookup,
    option_names,
    split_stages,
    to_dict,
    to_json,
    value_of,
    with_settings,
)
from pads.errors import UserError
from pads.recipes import RECIPES


def refusal(function, *arguments, **options):
    """The sentence that a user gets."""
    with pytest.raises(UserError) as refused:
        function(*arguments, **options)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


# -- the value ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [Config(), Data(), Network(), Sampling(), Optimiser(), Part("margin")])
def test_a_config_does_not_change_under_you(value):
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, "something else")


# -- JSON --------------------------------------------------------------------------------------------------------------

EVERYTHING = replace(
    Config(),
    recipe="mine",
    seed=3,
    data=Data(name="folder", root="photos", options={"test_share": 0.3}, flip=False),
    network=Network("small", mean=(0.5, 0.25, 0.125)),
    loss=Part("margin", {"beta": 0.6}),
    curriculum=Part("learned", {"bins": {"interval": [0.1, 1.4], "initial": "uniform"}, "policy": None}),
    optimiser=Optimiser(milestones=(10, 20)),
    adapt_every=None,
    threads=2,
    recall_at=(1, 10),
)


def test_a_config_survives_json():
    assert from_json(to_json(EVERYTHING)) == EVERYTHING
    assert from_json(to_json(Config())) == Config()
    assert json.loads(to_json(EVERYTHING))["optimiser"]["milestones"] == [10, 20]


def test_lists_in_json_become_the_tuples_of_the_config_and_whole_numbers_its_floats():
    config = from_dict({"recall_at": [1, 10], "optimiser": {"learning_rate": 1}, "network": {"mean": [0, 1, 2]}})
    assert config.recall_at == (1, 10)
    assert type(config.optimiser.learning_rate) is float
    assert config.network.mean == (0.0, 1.0, 2.0)
    assert all(type(value) is float for value in config.network.mean)


def test_what_is_not_said_keeps_its_default():
    assert from_dict({}) == Config()
    assert from_dict({"data": {"image_size": 32}}) == replace(Config(), data=Data(image_size=32))


def test_a_dict_of_a_config_is_a_copy():
    values = to_dict(EVERYTHING)
    values["curriculum"]["options"]["bins"]["interval"][0] = 99
    values["loss"]["options"]["beta"] = 99
    assert EVERYTHING.curriculum.options["bins"]["interval"] == [0.1, 1.4]
    assert EVERYTHING.loss.options == {"beta": 0.6}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": {"image_sise": 32}}, "there is no key 'data.image_sise'; did you mean data.image_size"),
        ({"loss": {"nam": "margin"}}, "there is no key 'loss.nam'; did you mean loss.name"),
        ({"loss": {"name": 3}}, "loss.name must be a text, not 3"),
        ({"loss": {"name": "margin", "options": [1]}}, "loss.options must be a group of options, not [1]"),
        ({"data": {"flip": 1}}, "data.flip must be true or false, not 1"),
        ({"data": {"root": 5}}, "data.root must be a text, not 5"),
        ({"optimiser": {"learning_rate": "small"}}, "optimiser.learning_rate must be a number, not 'small'"),
        ({"optimiser": {"learning_rate": False}}, "optimiser.learning_rate must be a number, not False"),
        ({"optimiser": {"milestones": 5}}, "optimiser.milestones must be a list, not 5"),
        ({"optimiser": {"milestones": [5, "late"]}}, "optimiser.milestones must be a whole number, not 'late'"),
        ({"adapt_every": "never"}, "adapt_every must be a whole number, not 'never'"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_full_name(values, words):
    assert words in refusal(from_dict, values)


@pytest.mark.parametrize("text", ["[]", "3", '"seed"', "null", '["seed"]'])
def test_json_that_is_no_group_of_settings_is_refused(text):
    assert "a config is a group of settings" in refusal(from_json, text)


# -- --set -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("seed=7", replace(Config(), seed=7)),
        (" seed = 7 ", replace(Config(), seed=7)),
        ("adapt_every=null", replace(Config(), adapt_every=None)),
        ("adapt_every=5", replace(Config(), adapt_every=5)),
        ("recall_at=[1, 10]", replace(Config(), recall_at=(1, 10))),
        ("device=cuda:1", replace(Config(), device="cuda:1")),
        ("recipe=a=b", replace(Config(), recipe="a=b")),
        ("recipe=", replace(Config(), recipe="")),
        ("data.flip=false", replace(Config(), data=Data(flip=False))),
        ("data.augmentation=random resized crop", replace(Config(), data=Data(augmentation="random resized crop"))),
        ('data.augmentation="none"', replace(Config(), data=Data(augmentation="none"))),
        ("data.root=my photos/", replace(Config(), data=Data(root="my photos/"))),
        ("optimiser.learning_rate=1e-3", replace(Config(), optimiser=Optimiser(learning_rate=1e-3))),
        ("optimiser.learning_rate=1", replace(Config(), optimiser=Optimiser(learning_rate=1.0))),
        ("optimiser.milestones=[]", replace(Config(), optimiser=Optimiser(milestones=()))),
        ("loss.options.beta=0.6", replace(Config(), loss=Part("margin", {"beta": 0.6}))),
        ('loss={"name": "triplet"}', replace(Config(), loss=Part("triplet"))),
        ('loss.options={"margin": 1}', replace(Config(), loss=Part("margin", {"margin": 1}))),
        ("loss.options.colour=red", replace(Config(), loss=Part("margin", {"colour": "red"}))),
        (
            "curriculum.options.bins.interval=[0.2, 1]",
            replace(Config(), curriculum=Part("distance-weighted", {"bins": {"interval": [0.2, 1]}})),
        ),
        (
            "curriculum.options.agent_options.a.b.c=true",
            replace(Config(), curriculum=Part("distance-weighted", {"agent_options": {"a": {"b": {"c": True}}}})),
        ),
    ],
)
def test_a_setting_is_json_where_it_is_json_and_text_otherwise(setting, expected):
    assert with_settings(Config(), [setting]) == expected


def test_settings_apply_one_after_the_other_and_leave_the_original_alone():
    before = to_json(EVERYTHING)
    changed = with_settings(
        EVERYTHING, ["seed=1", "seed=2", "loss.options.margin=0.1", "curriculum.options.bins.num_bins=5"]
    )
    assert changed.seed == 2
    assert changed.loss.options == {"beta": 0.6, "margin": 0.1}
    assert changed.curriculum.options["bins"] == {"interval": [0.1, 1.4], "initial": "uniform", "num_bins": 5}
    assert to_json(EVERYTHING) == before
    assert with_settings(EVERYTHING, []) == EVERYTHING


def test_another_part_does_not_inherit_the_options_of_the_one_before():
    assert with_settings(EVERYTHING, ["loss.name=triplet"]).loss == Part("triplet")
    assert with_settings(EVERYTHING, ["curriculum.name=random"]).curriculum == Part("random")
    assert with_settings(EVERYTHING, ["data.name=csv"]).data == replace(EVERYTHING.data, name="csv", options={})
    assert with_settings(EVERYTHING, ["loss.name=margin"]).loss == EVERYTHING.loss  # the same part keeps them


@pytest.mark.parametrize(
    "settings", [["loss.name=triplet", "loss.options.margin=1"], ["loss.options.margin=1", "loss.name=triplet"]]
)
def test_options_given_with_a_new_name_are_kept_in_whatever_order(settings):
    assert with_settings(EVERYTHING, settings).loss == Part("triplet", {"margin": 1})


def test_an_option_that_is_called_name_is_an_option():
    changed = with_settings(EVERYTHING, ["loss.options.name=x", "curriculum.options.agent_options.name=y"])
    assert changed.loss == Part("margin", {"beta": 0.6, "name": "x"})
    assert changed.curriculum.options["agent_options"] == {"name": "y"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seed", "--set seed: write it as key=value"),
        ("", "write it as key=value"),
        ("=5", "there is no key ''"),
        ("num_epoch=1", "there is no key 'num_epoch'; did you mean num_epochs"),
        ("data.image_sise=1", "there is no key 'data.image_sise'; did you mean data.image_size"),
        (
            "optimizer.learning_rate=1",
            "there is no key 'optimizer.learning_rate'; did you mean optimiser.learning_rate",
        ),
        ("loss.option.beta=1", "there is no key 'loss.option.beta'"),
        ("learning_rate=1", "did you mean optimiser.learning_rate"),
        ("quux.zyzzyva=1", "there is no key 'quux.zyzzyva'; there are: recipe, seed, data, data.name"),
        ("num_epochs=abc", "num_epochs must be a whole number, not 'abc'"),
        ("num_epochs=1.5", "num_epochs must be a whole number, not 1.5"),
        ("num_epochs=true", "num_epochs must be a whole number, not True"),
        ("num_epochs=null", "num_epochs must be a whole number, not None"),
        ("num_epochs=", "num_epochs must be a whole number, not ''"),
        ("data.flip=maybe", "data.flip must be true or false, not 'maybe'"),
        ("loss=triplet", "loss is a group of settings, not 'triplet': set one of its keys, such as loss.name"),
        ("loss.options=triplet", "loss.options must be a group of options, not 'triplet'"),
        ('loss={"options": {}}', "loss.name is missing"),
        ("seed.value=1", "seed is a single setting, so seed.value does not exist"),
        ("data.root.x=1", "data.root is a single setting, so data.root.x does not exist"),
        ("optimiser.milestones.0=1", "optimiser.milestones is a single setting"),
        ("network.options.width=3", "there is no key 'network.options'"),
        ("network.mean=[1,2]", "network.mean needs 3 values, not 2"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_with_the_nearest_right_ones(setting, words):
    assert words in refusal(with_settings, Config(), [setting])


def test_a_setting_below_an_option_that_is_a_single_value_is_refused():
    words = "loss.options.beta is a single setting, so loss.options.beta.start does not exist"
    assert words in refusal(with_settings, EVERYTHING, ["loss.options.beta.start=1"])


# -- what is still to be chosen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(CHOSEN))
def test_auto_leaves_a_setting_to_be_chosen_and_a_value_ends_that(key):
    # a backbone that is to be chosen brings its own input
    together = {key, *(("network.mean", "network.std") if key == "network.backbone" else ())}
    auto = with_settings(EVERYTHING, [f"{key}=auto"])
    assert isinstance(auto, AutoConfig) and auto.auto == together
    given = [f"{each}={json.dumps(value_of(EVERYTHING, each), default=asdict)}" for each in together]
    assert with_settings(auto, given) == EVERYTHING
    assert drop_auto(auto).recipe == EVERYTHING.recipe
    group = with_settings(EVERYTHING, [f"{key}=auto", "seed=4"])
    assert group.auto == together and group.config.seed == 4


def test_settings_of_an_auto_config_change_and_the_rest_is_still_to_be_chosen():
    auto = with_settings(Config(), ["num_epochs=auto", "data.resize=auto", "network.head=auto"])
    changed = with_settings(auto, ["data.resize=100", "seed=3", "loss.name=triplet"])
    assert changed.auto == {"num_epochs", "network.head"}
    assert changed.config == replace(Config(), seed=3, loss=Part("triplet"), data=Data(resize=100))
    assert with_settings(auto, []) == auto


def test_none_is_how_a_person_writes_that_there_are_no_weights():
    for text in ("none", "null", '"none"'):
        assert with_settings(EVERYTHING, [f"network.weights={text}"]).network.weights is None
        assert "network.weights" not in with_settings(RECIPES["folder"](), [f"network.weights={text}"]).auto


def test_one_setting_of_a_group_that_was_to_be_chosen_ends_the_choice_of_the_whole():
    changed = with_settings(RECIPES["folder"](), ["loss.options.beta=0.7", "before.num_epochs=3"])
    assert changed.config.loss == Part("margin", {"beta": 0.7}) and changed.config.before == {"num_epochs": 3}
    assert not {"loss", "before"} & changed.auto


def test_a_stage_before_is_the_config_with_its_own_settings():
    before = {"network": {"freeze": "backbone"}, "num_epochs": 4, "loss": {"name": "margin", "options": {"beta": 0.7}}}
    config = replace(Config(), before=before, loss=Part("triplet", {"margin": 0.3}))
    first, last = split_stages(config)
    assert (first.before, last) == ({}, replace(config, before={}))
    assert first == replace(
        last, network=replace(last.network, freeze="backbone"), num_epochs=4, loss=Part("margin", {"beta": 0.7})
    )
    assert split_stages(Config()) == (Config(),)
    assert from_json(to_json(config)) == config
    for wrong, words in (
        ({"num_epoch": 3}, "in `before`, the settings of the first stage: there is no key 'num_epoch'"),
        ({"optimiser": {"learning_rate": "high"}}, "optimiser.learning_rate must be a number"),
        ({"network": {"backbone": "small"}}, "network.backbone holds for the whole run"),
        ({"data": {"split_seed": 3}}, "data.split_seed holds for the whole run"),
        ({"num_epochs": -1}, "num_epochs is -1"),
    ):
        assert words in refusal(check, replace(Config(), before=wrong))


def test_a_group_may_hold_an_auto():
    assert with_settings(Config(), ['data={"image_size": "auto", "flip": false}']) == AutoConfig(
        replace(Config(), data=Data(flip=False)), frozenset({"data.image_size"})
    )


def test_no_config_holds_the_word_auto_in_the_place_of_a_value():
    auto = with_settings(Config(), [f"{key}=auto" for key in CHOSEN])
    assert auto == AutoConfig(Config(), CHOSEN)
    assert to_dict(auto)["num_epochs"] == "auto"
    assert from_values(to_dict(auto)) == auto


@pytest.mark.parametrize("key", sorted(CHOSEN))
def test_json_in_and_out_of_a_config_refuses_auto(key):
    auto = with_settings(Config(), [f"{key}=auto"])
    words = f"{key} is auto, but the config of a run holds what was chosen: give "
    assert words in refusal(from_dict, to_dict(auto))
    assert words in refusal(from_json, json.dumps(to_dict(auto)))
    assert words in refusal(to_json, auto)


def test_auto_that_a_setting_itself_means_is_a_value():
    assert with_settings(Config(), ["device=auto", "data.store_on=auto"]) == Config()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seed=auto", "seed must be a whole number, not 'auto'"),
        ("data.flip=auto", "data.flip must be true or false, not 'auto'"),
        ("optimiser.factor=auto", "optimiser.factor must be a number, not 'auto'"),
        ("data=auto", "data is a group of settings, not 'auto'"),
    ],
)
def test_auto_is_refused_where_nothing_is_chosen(setting, words):
    assert words in refusal(with_settings, Config(), [setting])


def test_a_config_of_plain_python_with_a_wrong_type_is_refused_at_the_door_and_by_a_file():
    for wrong in (replace(Config(), num_epochs="auto"), replace(Config(), num_epochs=1.5)):
        assert "num_epochs" in refusal(check, wrong)
        assert "num_epochs" in refusal(to_json, wrong)


# -- building parts ----------------------------------------------------------------------------------------------------


def plain(
    size: int = 1, share: float = 0.5, name: str | None = None, *, many: Sequence[float] = (), switch: bool = False
):
    return {"size": size, "share": share, "name": name, "many": many, "switch": switch}


def asking(seed: int, dim: int = 3) -> tuple[int, int]:
    return seed, dim


class Whatever:
    def __init__(self, **options):
        self.options = options


MAKERS = {"plain": plain, "asking": asking, "whatever": Whatever}


def test_a_part_gets_its_options_and_of_what_is_given_only_what_it_asks_for():
    assert build(MAKERS, Part("plain", {"size": 2}), "thing", seed=1, dim=9)["size"] == 2
    assert build(MAKERS, Part("asking"), "thing", seed=1, dim=9, other=5) == (1, 9)
    assert build(MAKERS, Part("asking"), "thing", seed=1) == (1, 3)
    assert build(MAKERS, Part("whatever"), "thing", seed=1).options == {}


def test_an_option_has_the_last_word_over_what_is_given():
    assert build(MAKERS, Part("asking", {"dim": 4}), "thing", seed=1, dim=9) == (1, 4)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part("plein"), "there is no thing 'plein'; did you mean plain"),
        (Part("quux"), "there is no thing 'quux'; there are: plain, asking, whatever"),
        (Part("plain", {"sise": 2}), "there is no option 'thing.options.sise'; did you mean thing.options.size"),
        (Part("whatever", {"size": 2}), "there is no option 'thing.options.size'; there are none"),
        (Part("plain", {"size": 2.5}), "thing.options.size must be a whole number, not 2.5"),
        (Part("plain", {"size": "two"}), "thing.options.size must be a whole number, not 'two'"),
        (Part("plain", {"size": True}), "thing.options.size must be a whole number, not True"),
        (Part("plain", {"share": "half"}), "thing.options.share must be a number, not 'half'"),
        (Part("plain", {"share": None}), "thing.options.share must be a number, not None"),
        (Part("plain", {"name": 3}), "thing.options.name must be a text or null, not 3"),
        (Part("plain", {"many": 3}), "thing.options.many must be a list, not 3"),
        (Part("plain", {"many": "abc"}), "thing.options.many must be a list, not 'abc'"),
        (Part("plain", {"many": [1, "b"]}), "thing.options.many must be a list, not [1, 'b']"),
        (Part("plain", {"switch": 1}), "thing.options.switch must be true or false, not 1"),
    ],
)
def test_a_part_or_an_option_that_does_not_fit_is_refused_by_its_full_name(part, words):
    assert words in refusal(build, MAKERS, part, "thing", seed=1)


def test_what_the_run_itself_gives_is_not_offered_as_an_option():
    sentence = refusal(call, asking, {"quux": 1}, "thing.options", seed=1)
    assert sentence == "there is no option 'thing.options.quux'; there are: thing.options.dim."


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, True),
        (1.0, int, False),
        (None, int | None, True),
        ("a", str | Sequence[float], True),
        ([1, 2.5], str | Sequence[float], True),
        (5, str | Sequence[float], False),
        ((1, 2), tuple[float, ...], True),
        ({"a": 1}, Mapping[str, int] | None, True),
        ([1], Mapping[str, int], False),
        (object(), "whatever a stranger wrote", True),
    ],
)
def test_a_value_fits_a_type_as_json_would_have_it(value, hint, expected):
    assert fits(value, hint) is expected


def test_annotations_that_cannot_be_read_are_not_checked():
    def stranger(size: "NotImported" = 3):  # noqa: F821
        return size

    assert call(stranger, {"size": "large"}, "options") == "large"
    assert option_names(stranger) == ["size"]


def test_looking_up_gives_the_part_or_the_nearest_name():
    assert lookup(MAKERS, "plain", "thing") is plain
    assert refusal(lookup, MAKERS, "Asking", "thing") == "there is no thing 'Asking'; did you mean asking?"
    assert refusal(lookup, {}, "x", "thing") == "there is no thing 'x'; there are none."
