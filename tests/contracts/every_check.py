"""All checks of a release, by name."""

import adaptive
import checks
import configuration

CHECKS: dict[str, checks.Check] = {
    check.__name__: check
    for check in (
        checks.base_file,
        checks.init_speculator,
        checks.propose_signature,
        checks.propose_calls,
        checks.capacity_attributes,
        checks.local_attributes,
        checks.abstract_methods,
        checks.keeping_context,
        checks.choke_point,
        checks.request_states,
        adaptive.adaptive_verification,
        configuration.configuration,
        configuration.parallel_sizes,
    )
}
