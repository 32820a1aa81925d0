"""If-conversion: arrows that data decide become arrows that always send, and bits that say which tokens there are."""
