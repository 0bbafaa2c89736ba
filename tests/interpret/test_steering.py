"""Steering: a direction that is added while a model writes is what a hook by hand adds, to plain Hugging Face."""

import pytest
import torch

from core.interpret.lens import layers_of
from core.interpret.patching import states_of, with_states
from core.interpret.steering import head_direction, mean_difference, steer
from core.models.base import hooked
from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs, PretrainedError, load_lab_model
from core.pretrained.generate import generate, prepare_generation
from tests.cases import each
from tests.close import assert_close
from tests.pretrained.test_attention_recorder import built
from tests.tiny_models import OTHER, SENTENCE, tiny

SETTINGS = SearchSettings(longest=8)
TEXTS = ("A small dog saw", "The green street"), ("It was late", "Nine boats")


def ids_of(pretrained, text):
    return torch.tensor([prepare_generation(pretrained, ModelInputs(text)).prompt.prefix_tokens])


def steered_by_hand(pretrained, direction, strength, text):
    """The greedy tokens of the library's own generate, and the logits of a pass, with a hook on the layer."""
    model, ids = pretrained.model, ids_of(pretrained, text)

    def add(module, inputs, output):
        return with_states(output, states_of(output) + strength * direction.vector)

    block = model.get_submodule(layers_of(pretrained)[direction.layer])
    with hooked(one.register_forward_hook(add) for one in [block]), torch.no_grad():
        written = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
        logits = model(ids).logits[0, -1]
    return tuple(written[0, ids.shape[1] :].tolist()), logits.softmax(-1)


@each("family", ["gpt2", "llama", "gemma3", "qwen3", "writer"])
def test_it_writes_what_a_hook_by_hand_does(family):
    pretrained = load_lab_model(family) if family == "writer" else tiny(family)
    text = "Mary gave a cake to John" if family == "writer" else SENTENCE
    direction = mean_difference(pretrained, 1, *TEXTS)
    outputs = set()
    for strength in (-2.0, 0.75, 3.0):
        steered = steer(pretrained, ModelInputs(text), direction, strength, SETTINGS)
        tokens, probabilities = steered_by_hand(pretrained, direction, strength, text)
        assert steered.tokens == tokens, strength
        assert_close(steered.probabilities, probabilities)
        outputs.add(tokens)
    assert len(outputs) > 1  # it changes something


@each("family", ["gpt2", "llama"])
def test_no_strength_changes_no_bit(family):
    pretrained, ids = tiny(family), ids_of(tiny(family), SENTENCE)
    with torch.no_grad():
        before = pretrained.model(ids).logits[0, -1].softmax(-1)
    direction = mean_difference(pretrained, 0, *TEXTS)
    steer(pretrained, ModelInputs(SENTENCE), direction, 4.0, SETTINGS)  # which leaves no hook
    nothing = steer(pretrained, ModelInputs(SENTENCE), direction, 0.0, SETTINGS)
    assert torch.equal(nothing.probabilities, before)
    tree = generate(pretrained, ModelInputs(SENTENCE), SETTINGS)
    assert nothing.tokens == tree.hypotheses[0].tokens
    assert not any(module._forward_hooks for module in pretrained.model.modules())


def test_a_direction_is_as_long_as_the_stream():
    pretrained, ends = tiny("gpt2"), []
    for texts in TEXTS:
        with torch.no_grad():
            read = [
                pretrained.model(ids_of(pretrained, text), output_hidden_states=True)
                for text in texts
            ]
        ends.append(torch.stack([one.hidden_states[1][0, -1] for one in read]))
    difference = ends[0].mean(0) - ends[1].mean(0)
    length = torch.cat(ends).norm(dim=-1).mean()
    direction = mean_difference(pretrained, 0, *TEXTS)
    assert_close(direction.vector, difference / difference.norm() * length)
    opposite = mean_difference(pretrained, 0, *TEXTS[::-1])
    assert_close(direction.vector, -opposite.vector)


def test_a_head_writes_by_its_part_of_w_o():
    pretrained, seen = tiny("llama"), {}
    layer = pretrained.model.model.layers[1]

    def see(module, inputs, output):
        seen[module] = inputs[0], states_of(output)

    with (
        hooked(one.register_forward_hook(see) for one in (layer, layer.self_attn.o_proj)),
        torch.no_grad(),
    ):
        pretrained.model(ids_of(pretrained, OTHER))
    output = layer.self_attn.o_proj
    columns = slice(4 * 8, 5 * 8)  # head 4, 8 dimensions
    written = seen[output][0][0, 2, columns] @ output.weight[:, columns].T
    direction = head_direction(pretrained, OTHER, 1, 4, 2)
    assert_close(direction.vector / direction.vector.norm(), written / written.norm())
    assert_close(direction.vector.norm(), seen[layer][1][0, 2].norm())


def test_layers_beside_and_without_attention():
    pretrained = built("falcon_h1")  # each layer has a state beside its attention
    layer, seen = pretrained.model.model.layers[1], []
    output = layer.self_attn.o_proj
    with hooked(
        one.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for one in [output]
    ):
        direction = head_direction(pretrained, SENTENCE, 1, 0, 3).vector
    size = layer.self_attn.head_dim
    written = seen[0][0, 3, :size] @ output.weight[:, :size].T
    assert_close(direction / direction.norm(), written.detach() / written.detach().norm())
    with pytest.raises(PretrainedError, match="no head 0 of layer 2"):
        head_direction(built("nemotron_h"), SENTENCE, 2, 0, 0)  # experts alone


@each(
    "family, do, says",
    [
        ("gpt2", lambda m: mean_difference(m, 9, *TEXTS), "gpt2 has the layers 0 to 1."),
        ("gpt2", lambda m: mean_difference(m, 0, (), ("a",)), "needs a text on each side"),
        ("gpt2", lambda m: mean_difference(m, 0, ("a dog",), ("a dog",)), "have no direction"),
        ("gpt2", lambda m: head_direction(m, SENTENCE, 0, 7, 0), "no head 7 of layer 0"),
        ("gpt2", lambda m: head_direction(m, SENTENCE, 0, 0, 99), "at token 99"),
        (
            "t5",
            lambda m: mean_difference(m, 0, *TEXTS),
            "reads with one part and writes with another",
        ),
        ("bert", lambda m: mean_difference(m, 0, *TEXTS), "does not generate text"),
    ],
)
def test_what_cannot_be_steered_says_why(family, do, says):
    with pytest.raises(PretrainedError, match=says):
        do(tiny(family))
