import numpy as np

import pads


def test_x(index, run, photos):
    print(
        index.engine, index.calibration, index.not_calibrated, index.labels[:3], index.paths[:3], index.threshold(0.5)
    )
    expected = pads.load(run, device="cpu").embed([photos / p for p in index.paths]).numpy()
    np.testing.assert_allclose(index.vectors_ND, expected, atol=1e-6)
    d, r = index.search(index.vectors_ND, 3)
    assert (r[:, 0] == np.arange(len(index))).all() and (d[:, 0] == 0).all()
    print(index.search([photos / index.paths[4]], 1000, label="class2"))
    pads.build_index(run, photos, index.path, note=print)
