"""The place in a list of comparisons, which is read a page at a time."""

from typing import Any

from django import forms


class PlaceForm(forms.Form):
    """The number of the comparison before or after which the page begins; by default the newest page."""

    before = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    after = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1)

    @property
    def place(self) -> dict[str, Any]:
        """The place as `engine.selectors.browsing.page_of` takes it; the newest page of a form that is not
        valid.
        """
        return self.cleaned_data if self.is_valid() else {}
