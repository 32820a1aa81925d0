"""Looking at programs and runs: replay, traces, breakpoints, plots, explanations."""
