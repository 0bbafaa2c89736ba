// Runs before Streamlit does.

import { hideWhatWaits } from "./waiting.js";

hideWhatWaits();
