"""Classifiers against plain scikit-learn and plain torch code."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eval.sentences.parallel_training import scaling_of
from eval.transfer.classifiers import Job, LogisticRegressions, MLPs
from tests.eval.transfer.classification_samples import clouds


def jobs(data, count, values, seed=0):
    """Return random divisions into halves."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(data.labels)) for _ in range(count)]
    return [Job(order[: len(order) // 2], order[len(order) // 2 :], values) for order in orders]


def agreement(predictions, expected):
    return np.mean([(a == b).mean() for a, b in zip(predictions, expected, strict=True)])


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("recipe", ["scaled", "senteval", "bert-lc"])
def test_logistic_regressions_equal_scikit_learn(recipe, classes):
    data = clouds(classes=classes, examples=400)
    classifier = LogisticRegressions(recipe)
    listed = jobs(data, 2, classifier.grid(folded=False))
    predictions = classifier.predict(data.features, data.labels, listed, 5)
    for job, predicted in zip(listed, predictions, strict=True):
        assert predicted.shape == (len(job.values), len(job.test))
        expected = []
        for value in job.values:
            plain = LogisticRegression(C=value, max_iter=5000)
            if recipe == "scaled":
                plain = make_pipeline(StandardScaler(), plain)
            if recipe == "bert-lc":
                plain = LogisticRegression(
                    C=value, solver="saga", tol=0.01, max_iter=200, random_state=5
                )
            plain.fit(data.features[job.train], data.labels[job.train])
            expected.append(plain.predict(data.features[job.test]))
        # What stops at a gradient of 1e-3 may put a few points on the other side.
        assert agreement(predicted, expected) > 0.985
    assert classifier.unconverged == 0


def test_classifier_grids_have_the_documented_values():
    assert LogisticRegressions("senteval").grid(folded=False) == (0.25, 0.5, 1, 2, 4, 8)
    assert LogisticRegressions("senteval").grid(folded=True) == (0.5, 1, 2, 4, 8, 16, 32)
    assert LogisticRegressions("bert-lc").grid(folded=False) == (10,)
    assert MLPs().grid(folded=False) == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2))


def test_scaling_of_a_constant_feature_is_finite():
    features = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    features[:, 1] = 7.3
    scaled = scaling_of(features)(features)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0)[[0, 2]], 1, atol=1e-5)
    assert np.abs(scaled[:, 1]).max() < 1e-4


def plain_mlp(data, job, value, settings, seed):
    """Train one network with torch's own layers and weight decay."""
    features = torch.tensor(
        StandardScaler().fit(data.features[job.train]).transform(data.features).astype(np.float32)
    )
    inputs, classes = features.shape[1], int(data.labels[job.train].max()) + 1
    random = np.random.default_rng([seed, 0])

    def drawn(fan_in, *shape):
        limit = 1 / np.sqrt(fan_in)
        return torch.tensor(random.uniform(-limit, limit, shape).astype(np.float32))

    first = torch.nn.Linear(inputs, settings.hidden)
    second = torch.nn.Linear(settings.hidden, classes)
    with torch.no_grad():
        first.weight.copy_(drawn(inputs, inputs, settings.hidden).T)
        first.bias.copy_(drawn(inputs, 1, settings.hidden)[0])
        second.weight.copy_(drawn(settings.hidden, settings.hidden, classes).T)
        second.bias.copy_(drawn(settings.hidden, 1, classes)[0])
    network = torch.nn.Sequential(first, torch.nn.Sigmoid(), second)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.rate, weight_decay=value)
    orders = np.random.default_rng([seed, 1])
    labels = torch.tensor(data.labels)
    for _ in range(settings.epochs):
        order = orders.permutation(job.train)
        for start in range(0, len(order), settings.batch):
            rows = torch.tensor(order[start : start + settings.batch])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(features[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return network(features[torch.tensor(job.test)]).argmax(dim=1).numpy()


@pytest.mark.parametrize("classes", [2, 3])
def test_mlps_trained_in_parallel_equal_single_torch_networks(classes):
    data = clouds(classes=classes, examples=300, apart=2)
    settings = MLPs(hidden=7, epochs=12, rate=0.01)
    # Strong decay, so that the strengths differ.
    listed = jobs(data, 12, (1e-5, 0.3))
    predictions = settings.predict(data.features, data.labels, listed, 9)
    for job, predicted in zip(listed, predictions, strict=True):
        expected = [plain_mlp(data, job, value, settings, 9) for value in job.values]
        assert agreement(predicted, expected) > 0.99
    assert agreement([rows[0] for rows in predictions], [rows[1] for rows in predictions]) < 0.99
