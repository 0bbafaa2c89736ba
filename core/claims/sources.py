"""The works that made the claims, and a table that two claims show."""

from dataclasses import replace

from core.claims.base import Published, Source

VASWANI = Source(
    "Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and "
    "Gomez, Aidan N. and Kaiser, Łukasz and Polosukhin, Illia",
    "Attention Is All You Need",
    2017,
    "https://arxiv.org/abs/1706.03762",
)
PRESS = Source(
    "Press, Ofir and Smith, Noah A. and Lewis, Mike",
    "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    2022,
    "https://arxiv.org/abs/2108.12409",
)
VOITA = Source(
    "Voita, Elena and Talbot, David and Moiseev, Fedor and Sennrich, Rico and Titov, Ivan",
    "Analyzing "
    "Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned",
    2019,
    "https://arxiv.org/abs/1905.09418",
)
XIONG = Source(
    "Xiong, Ruibin and Yang, Yunchang and He, Di and Zheng, Kai and Zheng, Shuxin and Xing, Chen and Zhang, "
    "Huishuai and Lan, Yanyan and Wang, Liwei and Liu, Tie-Yan",
    "On Layer Normalization in the Transformer Architecture",
    2020,
    "https://arxiv.org/abs/2002.04745",
)
ARORA = Source(
    "Arora, Simran and Eyuboglu, Sabri and Timalsina, Aman and Johnson, Isys and Poli, Michael and Zou, "
    "James and Rudra, Atri and Ré, Christopher",
    "Zoology: Measuring and Improving Recall in Efficient Language Models",
    2023,
    "https://arxiv.org/abs/2312.04927",
)
GUPTA = Source(
    "Gupta, Ankit and Dar, Guy and Goodman, Shaya and Ciprut, David and Berant, Jonathan",
    "Memory-efficient Transformers via Top-k Attention",
    2021,
    "https://arxiv.org/abs/2106.06899",
)
AINSLIE = Source(
    "Ainslie, Joshua and Lee-Thorp, James and de Jong, Michiel and Zemlyanskiy, Yury and Lebrón, Federico "
    "and Sanghai, Sumit",
    "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
    2023,
    "https://arxiv.org/abs/2305.13245",
)
YE = Source(
    "Ye, Tianzhu and Dong, Li and Xia, Yuqing and Sun, Yutao and Zhu, Yi and Huang, Gao and Wei, Furu",
    "Differential Transformer",
    2024,
    "https://arxiv.org/abs/2410.05258",
)
JAIN = Source(
    "Jain, Sarthak and Wallace, Byron C.",
    "Attention is not Explanation",
    2019,
    "https://arxiv.org/abs/1902.10186",
)
OLSSON = Source(
    "Olsson, Catherine and Elhage, Nelson and Nanda, Neel and Joseph, Nicholas and "
    "DasSarma, Nova and others",
    "In-context Learning and Induction Heads",
    2022,
    "https://arxiv.org/abs/2209.11895",
)
XIAO = Source(
    "Xiao, Guangxuan and Tian, Yuandong and Chen, Beidi and Han, Song and Lewis, Mike",
    "Efficient Streaming Language Models with Attention Sinks",
    2023,
    "https://arxiv.org/abs/2309.17453",
)
GEMMA = Source("Gemma Team", "Gemma 3 Technical Report", 2025, "https://arxiv.org/abs/2503.19786")
CLARK = Source(
    "Clark, Kevin and Khandelwal, Urvashi and Levy, Omer and Manning, Christopher D.",
    "What Does BERT Look At? An Analysis of BERT's Attention",
    2019,
    "https://arxiv.org/abs/1906.04341",
)
BAHDANAU = Source(
    "Bahdanau, Dzmitry and Cho, Kyunghyun and Bengio, Yoshua",
    "Neural Machine Translation by Jointly Learning to Align and Translate",
    2014,
    "https://arxiv.org/abs/1409.0473",
)
BRITZ = Source(
    "Britz, Denny and Goldie, Anna and Luong, Minh-Thang and Le, Quoc",
    "Massive Exploration of Neural Machine Translation Architectures",
    2017,
    "https://arxiv.org/abs/1703.03906",
)
BRITZ_SIZES = Published(
    "Britz et al. 2017, section 4.5",
    BRITZ.url,
    ("Size", "BLEU, multiplicative score", "BLEU, additive score"),
    (
        ("128", "22.03 ± 0.08", "22.23 ± 0.11"),
        ("256", "22.33 ± 0.28", "22.33 ± 0.04"),
        ("512", "21.78 ± 0.05", "22.47 ± 0.27"),
        ("1,024", "18.22 ± 0.03", "22.10 ± 0.18"),
    ),
    "English to German, newstest2013, mean and deviation over runs; the multiplicative score is not scaled. Without "
    "attention: 9.98 ± 0.28 and 11.57 ± 0.30.",
)
STAHLBERG = Source(
    "Stahlberg, Felix and Byrne, Bill",
    "On NMT Search Errors and Model Errors: Cat Got Your Tongue?",
    2019,
    "https://arxiv.org/abs/1908.10090",
)
IRIS_TUTORIALS = Source(
    "Tutorials on attention",
    "A Transformer encoder on Iris: 96 % accuracy, about 15,000 "
    "parameters, head 1 looks at the sepals",
    2024,
    "https://archive.ics.uci.edu/dataset/53/iris",
)
ADVANTAGE_TUTORIALS = Source(
    "Tutorials on attention",
    "Advantages of attention over recurrent networks: multi-head "
    "attention adds parameters without much cost, attention parallelises, its weights can be "
    "read",
    2024,
    "https://arxiv.org/abs/1706.03762",
)


def at(source: Source, part: str) -> Source:
    """A work's section, table or figure."""
    return replace(source, part=part)
