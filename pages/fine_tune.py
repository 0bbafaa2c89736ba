"""Fine-tune: a pretrained model goes on learning from a reader's rows, and its attention is seen to change."""

import streamlit as st

from core.finetune.run import make_trainer
from dashboard.runtime import jobs
from dashboard.runtime.fine_tune_data import chosen, linked
from dashboard.views.fine_tune.controls import setup
from dashboard.views.fine_tune.page import pictures
from dashboard.views.fine_tune.run_bar import bar, follow
from dashboard.widgets.panels import next_page, source_panel, title

title("Fine-tune",
      "A pretrained model goes on learning from your rows. Drag the step and see what its attention does about it.")
jobs.warm_up()
if trouble := linked():
    st.warning(trouble)
task, config = setup()
run = chosen(task)
bar(run, config)
follow(pictures, run)
asked = st.expander("How it learns: the source that just ran, and papers", on_change="rerun", key="fine_tune:how")
if asked.open:
    with asked:
        st.markdown("Hugging Face's [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) takes "
                    "the steps; a callback writes what every run here writes. A new head on a pretrained encoder is "
                    "how [Devlin 2019](https://arxiv.org/abs/1810.04805) fine-tunes; that later layers change most "
                    "is what [Merchant 2020](https://arxiv.org/abs/2004.14448) and "
                    "[Kovaleva 2019](https://arxiv.org/abs/1908.08593) report.")
        source_panel(make_trainer)
next_page("fine_tune")
