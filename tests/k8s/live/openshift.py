"""Acts like OpenShift's SCC restricted-v2 on the pods of a namespace, by admission policies of the API server."""
import contextlib
import json

UID = 1000650000  # a user ID like those of OpenShift's restricted-v2: high and not in /etc/passwd, with group 0
# SCC has policies that act like OpenShift's SCC restricted-v2. They give a pod a user and group of its namespace's range, and refuse other users.
SCC = [
    {"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "scc"},
     "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
              "matchConstraints": {
                  "namespaceSelector": {"matchLabels": {"coxswain.test/scc": "restricted-v2"}},
                  "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
              "matchConditions": [{"name": "unset", "expression": "!has(object.spec.securityContext) || "
                                                                  "(!has(object.spec.securityContext.runAsUser) && !has(object.spec.securityContext.fsGroup))"}],
              "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
                  "expression": f"Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{runAsUser: {UID}, fsGroup: {UID}}}}}}}"}}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "scc"},
     "spec": {"policyName": "scc"}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "scc"},
     "spec": {"failurePolicy": "Fail", "matchConstraints": {
         "namespaceSelector": {"matchLabels": {"coxswain.test/scc": "restricted-v2"}},
         "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
         "validations": [{"expression": f"object.spec.securityContext.runAsUser == {UID} && object.spec.securityContext.fsGroup == {UID}",
                          "message": "a user or group that is not of the namespace's range"}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "scc"},
     "spec": {"policyName": "scc", "validationActions": ["Deny"]}},
]


def tried(kube, space, **context):
    """Returns the API server's answer to a restricted pod with this security context: the pod, or the reason of the refusal."""
    spec = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} | context,
            "containers": [{"name": "it", "image": "none", "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}
    try:
        return kube.kubectl("-n", space, "run", "it", "--image=none", "--dry-run=server", "-o", "json",
                            "--overrides", json.dumps({"spec": spec}))
    except AssertionError as refused:
        return str(refused)


@contextlib.contextmanager
def restricted(kube, space):
    """Gives each new pod of the namespace a high user ID and fsGroup of the namespace's range, and refuses other users, within this
    context."""
    kube.apply("default", *SCC)
    try:
        kube.kubectl("label", "namespace", space, "coxswain.test/scc=restricted-v2")
        # The API server applies the two policies one after the other.
        kube.wait("the admission policy that sets a user", lambda: f'"fsGroup": {UID}' in tried(kube, space))
        kube.wait("the admission policy that refuses other users", lambda: "not of the namespace's range" in tried(kube, space, runAsUser=1001))
        yield
    finally:
        kube.kubectl("delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding,validatingadmissionpolicy,"
                               "validatingadmissionpolicybinding", "scc", "--ignore-not-found")
