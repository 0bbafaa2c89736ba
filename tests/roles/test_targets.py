"""Which keys each role speaks of, on lines whose answer is read off by hand."""

import numpy as np

from core.interpret.roles import ROLES, Text, rank
from tests.cases import each
from tests.roles.readings import line

LINE = "[CLS] the cat saw the heron . the cat [SEP]"
#       0     1   2   3   4   5     6 7   8   9
BY_KEY = {role.key: role for role in ROLES}


def target_keys(key: str, text: str = LINE) -> dict[int, list[int]]:
    """For each ordinary row the keys of a role, where there are any."""
    made = Text(line(text))
    targets = BY_KEY[key].targets(made)
    assert targets.shape == (len(made), len(made))
    rows = np.flatnonzero(targets.any(-1) & made.ordinary)
    return {int(i): [int(j) for j in np.flatnonzero(targets[i])] for i in rows}


def test_neighbours_leave_out_the_first_token_and_the_special_ones():
    assert target_keys("previous") == {i: [i - 1] for i in range(2, 9)}
    assert target_keys("next") == {i: [i + 1] for i in range(1, 8)}
    assert target_keys("self") == {i: [i] for i in range(1, 9)}


def test_the_first_token_is_no_neighbour():
    assert target_keys("first") == {i: [0] for i in range(2, 9)}
    assert target_keys("previous", "a b c") == {2: [1]}  # without a special token before them, too


def test_delimiters_are_signs_and_end_marks_for_all_others():
    assert target_keys("delimiter") == {i: [6, 9] for i in (1, 2, 3, 4, 5, 7, 8)}
    assert target_keys("delimiter", "[CLS] a [UNK] b") == {}


def test_the_same_word_elsewhere_but_not_beside_it():
    assert target_keys("same") == {1: [4, 7], 2: [8], 4: [1, 7], 7: [1, 4], 8: [2]}
    assert target_keys("same", "the the cat the") == {0: [3], 3: [0, 1], 1: [3]}
    assert target_keys("same", ". a . b .") == {}


def test_words_are_whole_words_in_small_letters():
    assert Text(line("[CLS] Her ##on saw heron . [SEP]")).words == (
        "",
        "heron",
        "heron",
        "saw",
        "heron",
        "",
        "",
    )
    assert target_keys("same", "[CLS] Her ##on saw heron . [SEP]") == {1: [4], 2: [4], 4: [1, 2]}


def test_the_rarest_word_and_none_where_two_are_as_rare():
    assert rank("the") < rank("cat") < rank("heron") < rank("qzx")
    assert target_keys("rare") == {i: [5] for i in (1, 2, 3, 4, 6, 7, 8)}
    assert target_keys("rare", "qzxa saw qzxb") == {}
    assert target_keys("rare", "1,2 3,4 5,6") == {}


def test_induction_is_what_followed_before_where_the_text_goes_on_alike():
    # 7 "the" stood at 1 and 4; after it comes "cat", as after 1 but not as after 4. 8 ends the line: [SEP] is no "saw".
    assert target_keys("induction") == {1: [8], 7: [2]}
    assert target_keys("induction", "a b c a b") == {
        0: [4],
        3: [1],
        4: [2],
    }  # the last token has nothing after it
    assert target_keys("induction", "a a b") == {}


def test_a_word_that_the_model_does_not_know_is_no_word():
    """Two unknown words look alike, yet nobody knows whether they are the same."""
    unknown = line("<s> the <unk> saw the <unk> saw")
    assert not Text(unknown).ordinary[[2, 5]].any()
    assert target_keys("same", "<s> the <unk> saw the <unk> saw") == {
        1: [4],
        3: [6],
        4: [1],
        6: [3],
    }
    assert target_keys("rare", "<s> the <unk> and") == {1: [3]}
    assert target_keys("induction", "<s> the <unk> saw the <unk> saw") == {
        6: [4]
    }  # nothing follows the last


@each("text", ["a", "[CLS] [SEP]", "[CLS] a [SEP]", ". . .", "🙂 🙂"])
@each("role", [role for role in ROLES if role.targets])
def test_short_and_odd_lines_break_nothing(role, text):
    made = Text(line(text))
    assert role.targets(made).shape == (len(made), len(made))
