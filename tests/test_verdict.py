"""What figures are worth, said in one sentence that is true."""

import pytest

from pads.config import Network
from pads.verdict import judge, name_backbone


def compared(*, own="trained", spread=0.07, **gains):
    half = {"recall@1": [0.8, 0.8 - spread, 0.8 + spread], "map@r": [0.6, 0.6 - spread / 2, 0.6 + spread / 2]}
    over = {name.replace("_", " "): {"map@r": list(gain), "recall@1": [0, 0, 0]} for name, gain in gains.items()}
    return {"queries": 200, "classes": 20, own: half, "gain_over": over}


def test_a_gain_is_said_with_its_interval_and_what_it_was_measured_on():
    sentence, spread = judge(compared(pretrained_features=(0.052, 0.014, 0.090), raw_pixels=(0.3, 0.2, 0.4)))
    assert sentence == (
        "Better than the pretrained features by 5.2 [1.4, 9.0] points of MAP@R, on 200 images of 20 classes."
    )
    assert (
        spread == "200 images of 20 classes give R@1 to ± 7.0 and MAP@R to ± 3.5 points (95 % intervals over classes)."
    )


def test_what_is_not_resolved_is_no_gain():
    sentence, _ = judge(compared(pretrained_features=(0.012, -0.020, 0.044)))
    assert sentence.startswith(
        "No better than the pretrained features, as far as 200 images of 20 classes tell: +1.2 [-2.0, +4.4] points of MAP@R;"
    )
    assert "try more classes" in sentence


def test_worse_is_said_in_plain_words_with_what_to_do_instead():
    sentence, _ = judge(compared(pretrained_features=(-0.031, -0.052, -0.010)), backbone="efficientnet-lite0")
    assert sentence.startswith("Worse than the pretrained features by 3.1 [1.0, 5.2] points of MAP@R")
    assert "`pads index backbone:efficientnet-lite0 IMAGES --out INDEX`" in sentence


def test_every_baseline_that_is_not_beaten_is_named():
    gains = {
        "pretrained_features": (0.1, 0.05, 0.15),
        "raw_pixels": (-0.2, -0.3, -0.1),
        "untrained": (-0.01, -0.05, 0.03),
    }
    first, second, third, _ = judge(compared(**gains))
    assert first.startswith("Better than the pretrained features")
    assert second.startswith("Worse than raw pixels by 20.0")
    assert third.startswith("No better than the untrained network")


def test_without_a_pretrained_network_raw_pixels_are_what_it_has_to_beat():
    assert judge(compared(raw_pixels=(0.1, 0.05, 0.15)))[0].startswith("Better than raw pixels by 10.0")
    assert 'pip install "pads-dml[pretrained]"' in judge(compared(raw_pixels=(0.1, -0.05, 0.25)))[0]


def test_plain_features_are_compared_too_and_helped_by_another_network():
    sentence, _ = judge(compared(own="pretrained features", raw_pixels=(-0.1, -0.2, -0.05)), "pretrained features")
    assert sentence.endswith("try another network, such as backbone:timm:NAME.")


def test_many_images_need_no_warning_and_unknown_figures_no_sentence():
    assert len(judge(compared(spread=0.004, raw_pixels=(0.1, 0.05, 0.15)))) == 1
    assert judge({}) == []


def test_queries_that_all_succeed_do_not_promise_that_all_will():
    found = compared(raw_pixels=(0.1, 0.05, 0.15))
    found["trained"]["recall@1"] = [1.0, 1.0, 1.0]
    assert judge(found)[1].startswith("200 images of 20 classes give MAP@R to ± 3.5 points")


@pytest.mark.parametrize(
    ("weights", "name"), [("imagenet", "resnet18"), (None, "resnet18"), ("/home/me/w.pth", "resnet18=FILE")]
)
def test_a_name_tells_nothing_of_the_machine(weights, name):
    assert name_backbone(Network("resnet18", weights=weights)) == name
