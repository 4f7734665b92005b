"""A bare Django site: the least that a click costs, with a session, CSRF, a login and three statements.

The floor of `benchmarks.serving_load`: one update, one insert and one select, in one transaction, and the
smallest reply.
"""

from django.contrib.auth.decorators import login_required
from django.db import models, transaction
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.urls import path
from django.views.decorators.http import require_http_methods


class Counter(models.Model):
    """A row that each click of an annotator updates."""

    clicks = models.IntegerField(default=0)

    class Meta:
        app_label = "engine"
        db_table = "floor_counter"

    def __str__(self) -> str:
        return f"{self.clicks} clicks"


class Click(models.Model):
    """A row that each click inserts."""

    counter = models.ForeignKey(Counter, models.CASCADE)
    choice = models.CharField(max_length=10)

    class Meta:
        app_label = "engine"
        db_table = "floor_click"

    def __str__(self) -> str:
        return self.choice


@login_required
@require_http_methods(["GET", "POST"])
def click(request: HttpRequest) -> HttpResponse:
    """Store one click of this user."""
    if request.method == "GET":
        return HttpResponse(get_token(request))
    counter = request.user.pk
    with transaction.atomic():
        Counter.objects.filter(pk=counter).update(clicks=models.F("clicks") + 1)
        Click.objects.create(counter_id=counter, choice=request.POST["choice"])
        clicks = Counter.objects.values_list("clicks", flat=True).get(pk=counter)
    return HttpResponse(str(clicks))


urlpatterns = [path("click/", click)]
