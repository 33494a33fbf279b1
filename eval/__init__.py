"""Evaluation: which encoder, ranking or reranker is better, by how much, and how sure that is.

Each experiment is one function that takes data and settings and returns a result with `text()`,
`to_json()` and `write(folder)`:

>>> from eval import QASettings, rank_systems
>>> result = rank_systems("wikiqa", ["bm25", "cosine", "hybrid:tuned"])   # doctest: +SKIP
>>> print(result.text())                                                  # doctest: +SKIP

`progress` is called at each stage (see `Progress`), and `notify` with lines that a person should
read; the report of a result names `command` as what reproduces it. Settings of None are the
defaults, and an empty encoder is the bundled model.

Each name is imported when it is asked for, which loads neither torch, scikit-learn, scipy nor
matplotlib.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from eval.calibration import CalibrationResult as CalibrationResult
    from eval.calibration import calibrate as calibrate
    from eval.datasets.classification import ClassificationTask as ClassificationTask
    from eval.datasets.classification import read_classification as read_classification
    from eval.datasets.classification import read_probing as read_probing
    from eval.datasets.pairs import ScoredPairs as ScoredPairs
    from eval.datasets.pairs import STSTask as STSTask
    from eval.datasets.pairs import read_pairs as read_pairs
    from eval.datasets.pairs import read_sts as read_sts
    from eval.datasets.probing import ProbingFiles as ProbingFiles
    from eval.datasets.probing import make_probing as make_probing
    from eval.datasets.question_forms import read_question_set as read_question_set
    from eval.datasets.question_set import Question as Question
    from eval.datasets.question_set import QuestionSet as QuestionSet
    from eval.figures import check_figure as check_figure
    from eval.figures import save_figure as save_figure
    from eval.inspect.layers import LayerInspection as LayerInspection
    from eval.inspect.layers import inspect_layers as inspect_layers
    from eval.inspect.words import MetaInspection as MetaInspection
    from eval.inspect.words import WeightInspection as WeightInspection
    from eval.inspect.words import WordInspection as WordInspection
    from eval.inspect.words import inspect_meta as inspect_meta
    from eval.inspect.words import inspect_weights as inspect_weights
    from eval.inspect.words import inspect_words as inspect_words
    from eval.inspect.words import is_meta as is_meta
    from eval.inspect.words import sbert_wk_form as sbert_wk_form
    from eval.layers.evaluation import LayerSearchResult as LayerSearchResult
    from eval.layers.evaluation import search_layers as search_layers
    from eval.metrics.comparison import Comparison as Comparison
    from eval.metrics.comparison import Difference as Difference
    from eval.metrics.comparison import Score as Score
    from eval.metrics.comparison import compare as compare
    from eval.metrics.gate import GatedMeasure as GatedMeasure
    from eval.metrics.gate import GateResult as GateResult
    from eval.metrics.gate import gate as gate
    from eval.metrics.measures import Evaluation as Evaluation
    from eval.metrics.measures import canonical_measures as canonical_measures
    from eval.metrics.measures import evaluate as evaluate
    from eval.metrics.trec import read_qrels as read_qrels
    from eval.metrics.trec import read_run as read_run
    from eval.metrics.trec import write_run as write_run
    from eval.papers import Experiment as Experiment
    from eval.papers import experiments as experiments
    from eval.progress import Progress as Progress
    from eval.qa.evaluation import rank_layers as rank_layers
    from eval.qa.evaluation import rank_systems as rank_systems
    from eval.qa.rerankers import FittedCrossEncoder as FittedCrossEncoder
    from eval.qa.rerankers import FittedReranker as FittedReranker
    from eval.qa.rerankers import fit_cross_encoder as fit_cross_encoder
    from eval.qa.rerankers import fit_reranker as fit_reranker
    from eval.qa.result import QAResult as QAResult
    from eval.qa.result import SystemResult as SystemResult
    from eval.qa.systems import HeadPlan as HeadPlan
    from eval.qa.systems import QASettings as QASettings
    from eval.questions import MadeQuestions as MadeQuestions
    from eval.questions import make_questions as make_questions
    from eval.reports import Report as Report
    from eval.reports import Section as Section
    from eval.reports import Table as Table
    from eval.reports import check_report_folder as check_report_folder
    from eval.sentences.result import SentenceResult as SentenceResult
    from eval.sentences.sts import score_sts as score_sts
    from eval.settings import CalibrationSettings as CalibrationSettings
    from eval.settings import CrossPlan as CrossPlan
    from eval.settings import GateSettings as GateSettings
    from eval.settings import LayerSearchSettings as LayerSearchSettings
    from eval.settings import LayerTransferSettings as LayerTransferSettings
    from eval.settings import Loading as Loading
    from eval.settings import MadeQuestionSettings as MadeQuestionSettings
    from eval.settings import ProbingSettings as ProbingSettings
    from eval.settings import QuestionSettings as QuestionSettings
    from eval.settings import RelatednessSettings as RelatednessSettings
    from eval.settings import Resampling as Resampling
    from eval.settings import STSSettings as STSSettings
    from eval.settings import TransferProtocol as TransferProtocol
    from eval.settings import TransferSettings as TransferSettings
    from eval.settings import TuneSettings as TuneSettings
    from eval.training.corpus_pairs import CorpusPairs as CorpusPairs
    from eval.training.data import EncoderFitSettings as EncoderFitSettings
    from eval.training.encoder import FittedEncoder as FittedEncoder
    from eval.training.encoder import fit_encoder as fit_encoder
    from eval.transfer.evaluation import score_probing as score_probing
    from eval.transfer.evaluation import score_transfer as score_transfer
    from eval.tuning import tune as tune
    from eval.tuning.pipeline import Pipeline as Pipeline
    from eval.tuning.pipeline import read_pipeline as read_pipeline
    from eval.tuning.result import TuneResult as TuneResult
    from eval.vectors import named_encoders as named_encoders
    from retriever.files import default_cache as default_cache

_NAMES = {
    "eval.calibration": "calibrate CalibrationResult",
    "eval.datasets.classification": "ClassificationTask read_classification read_probing",
    "eval.datasets.pairs": "ScoredPairs STSTask read_pairs read_sts",
    "eval.datasets.probing": "ProbingFiles make_probing",
    "eval.datasets.question_forms": "read_question_set",
    "eval.datasets.question_set": "Question QuestionSet",
    "eval.figures": "check_figure save_figure",
    "eval.inspect.layers": "LayerInspection inspect_layers",
    "eval.inspect.words": (
        "MetaInspection WeightInspection WordInspection inspect_meta inspect_weights inspect_words "
        "is_meta sbert_wk_form"
    ),
    "eval.layers.evaluation": "LayerSearchResult search_layers",
    "eval.metrics.comparison": "Comparison Difference Score compare",
    "eval.metrics.gate": "GateResult GatedMeasure gate",
    "eval.metrics.measures": "Evaluation canonical_measures evaluate",
    "eval.metrics.trec": "read_qrels read_run write_run",
    "eval.papers": "Experiment experiments",
    "eval.progress": "Progress",
    "eval.qa.evaluation": "rank_layers rank_systems",
    "eval.qa.rerankers": "FittedCrossEncoder FittedReranker fit_cross_encoder fit_reranker",
    "eval.qa.result": "QAResult SystemResult",
    "eval.qa.systems": "HeadPlan QASettings",
    "eval.questions": "MadeQuestions make_questions",
    "eval.reports": "Report Section Table check_report_folder",
    "eval.sentences.result": "SentenceResult",
    "eval.sentences.sts": "score_sts",
    "eval.settings": (
        "CalibrationSettings CrossPlan GateSettings LayerSearchSettings LayerTransferSettings "
        "Loading MadeQuestionSettings ProbingSettings QuestionSettings RelatednessSettings "
        "Resampling STSSettings TransferProtocol TransferSettings TuneSettings"
    ),
    "eval.training.corpus_pairs": "CorpusPairs",
    "eval.training.data": "EncoderFitSettings",
    "eval.training.encoder": "FittedEncoder fit_encoder",
    "eval.transfer.evaluation": "score_probing score_transfer",
    "eval.tuning": "tune",
    "eval.tuning.pipeline": "Pipeline read_pipeline",
    "eval.tuning.result": "TuneResult",
    "eval.vectors": "named_encoders",
    "retriever.files": "default_cache",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES} - {"annotations"})
