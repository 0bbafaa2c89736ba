"""Head roles: what each head of a pretrained model looks at, measured over sentences beside the chance of it."""

from dashboard.views.head_roles.page import page as page
