"""The sentences on which roles are measured, written for this project."""

from __future__ import annotations

# Mostly common words, for models of a small vocabulary; one word in each is rarer than the others.
SENTENCES: tuple[str, ...] = (
    "The animal didn't cross the street because it was too tired.",
    "The old man opened the door, and the cold wind came into the house.",
    "A queen of silver and gold sat by the window; the king stood under a chandelier.",
    "She read the letter again, but there was no name in it.",
    "The cat slept on the chair, and the dog slept under the chair.",
    "When the rain came, the children ran to the barn.",
    "He asked for bread, milk, cheese and marmalade.",
    "The boat left the town at night. In the morning it was far out on the sea.",
    "If you walk over the hill, you see the lake where the heron lives.",
    "My friend told me the story of a bear and a mouse in the forest.",
    "The teacher wrote one word on the blackboard, then another word, and then she waited.",
    "They played in the garden until the sun was down.",
    "Was it you who took the small box, or was it your brother?",
    "The train to the city was late; the train from the city never came.",
    "All the windows of the old school were dark, but one was open.",
    "The fisherman sold three fish, gave one away, and ate the last one himself.",
    "In winter the snow lies white on the roofs, and the river is still.",
    "A boy gave the girl an apple, and the girl gave the boy a book.",
    "The moon was up, the stars were out, and the wolf was near.",
    "Before we could speak, the orchestra played.",
    "The long road goes from the mountain to the sea, through field and forest.",
    "I thought of the green hat, of the blue coat, and of the person who wore them.",
    "The horse fell in the river, stood up and walked on.",
    "There are two clocks in this room; the clock on the wall is never right.",
    # Repetitions, which show induction.
    "The old man saw the red fox by the river, and the old man saw the red fox by the river.",
    "A cup of tea and a little cake, a cup of tea and a little cake.",
    "dog tree gold hand ship milk king fire dog tree gold hand ship milk king fire",
    "the bird flew over the dark lake . we heard the bird flew over the dark lake .",
    "water stone apple night horse letter bread snow moon water stone apple night horse letter bread snow moon",
    "She lost her blue coat in the town, so he found her blue coat in the town.",
)

# For a model of number words alone; every second line repeats itself.
NUMBERS: tuple[str, ...] = (
    "three hundred and forty two",
    "seven thousand one hundred and nineteen ; seven thousand one hundred and nineteen",
    "fifty six ; nine hundred and four ; twelve",
    "eight thousand and thirty ; eight thousand and thirty ; two",
    "one thousand four hundred and ninety three",
    "six hundred and eleven ; six hundred and eleven",
    "two ; twenty two ; two hundred and twenty two",
    "five thousand nine hundred and sixty ; five thousand nine hundred and sixty",
    "eighty seven ; three thousand and fifteen",
    "four hundred and seventy eight ; one ; four hundred and seventy eight",
    "nine thousand two hundred and thirteen ; forty",
    "thirty five ; six thousand and seventeen ; thirty five ; six thousand and seventeen",
    "eighteen ; eight hundred and eighty ; ten",
    "two thousand and sixty four ; two thousand and sixty four",
    "seven hundred and fifty one ; nine thousand",
    "one hundred and twenty nine ; fourteen ; one hundred and twenty nine ; fourteen",
)
