//! After the steps: the commands that work beside the quick start, the tree as it changes, and programs that a user
//! killed are started again.

use super::demo::Demo;
use super::manifests::Manifests;

impl Demo<'_> {
    /// Stays until a signal ends the process.
    pub async fn stay(&mut self, manifests: Option<&Manifests>) -> anyhow::Result<()> {
        let commands = self.commands(manifests);
        self.screen.print(&commands)?;
        loop {
            self.draw()?;
            self.change().await;
            for told in self.programs.revive()? {
                self.screen.say(&told)?;
                // A program that ends at once must not be started more often than this.
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
    }

    /// Ready to paste.
    fn commands(&self, manifests: Option<&Manifests>) -> Vec<String> {
        let kubeconfig = self.programs.plane().kubeconfig();
        let bin = self.programs.bin();
        let mut lines = vec![
            String::new(),
            "It stays like this until Ctrl-C. In another terminal:".to_owned(),
            String::new(),
            format!(
                "  export KUBECONFIG={} PATH={}:$PATH",
                kubeconfig.display(),
                bin.display()
            ),
            "  kubectl get machines -w".to_owned(),
            "  kubectl get machinedeployments,machinesets,machines,nodes".to_owned(),
        ];
        if let Some(Manifests { deployment, .. }) = manifests {
            lines.push(format!("  kubectl scale machinedeployment {deployment} --replicas=5"));
            lines.push(format!("  kubectl machine rollout status {deployment}"));
            lines.push("  kubectl machine tree".to_owned());
        }
        let machines = self.seen.machines();
        if let Some(machine) = machines.first() {
            let machine = millwright_core::api::meta::name(&machine.metadata);
            lines.push(format!("  kubectl delete machine {machine}"));
            if let Some(console) = self.programs.console() {
                let tool = "millwright-provider-virtual console --connect";
                lines.push(format!("  {tool} {console} vms"));
                lines.push(format!("  {tool} {console} stop {machine}"));
            }
        }
        if let Some(pid) = self.programs.manager_pid() {
            lines.push(format!(
                "  kill -9 {pid}      # the manager; it is started again and carries on"
            ));
        }
        lines.push(format!("  curl -s http://{}/metrics", self.programs.metrics()));
        if let Some(socket) = self.programs.driver().strip_prefix("unix://") {
            lines.push(format!("  grpcurl -plaintext -unix {socket} list"));
        }
        lines.push(String::new());
        lines
    }
}

/// For the author of a provider: what the manager needs to make machines with it.
pub fn how_to_write_manifests(driver: &str) -> Vec<String> {
    let text = format!(
        "\n\
         The examples are for the simulated cloud, so nothing is applied. Write manifests for your driver, and apply them with\n\
         kubectl, or start again with --manifests DIR. With machines whose nodes do not join, start with --no-nodes.\n\n\
         \x20 apiVersion: v1\n\
         \x20 kind: Secret\n\
         \x20 metadata: {{name: first}}\n\
         \x20 stringData: {{userData: \"#cloud-config\"}}   # and the credentials that your driver wants\n\
         \x20 ---\n\
         \x20 apiVersion: machine.sapcloud.io/v1alpha1\n\
         \x20 kind: MachineClass\n\
         \x20 metadata: {{name: first}}\n\
         \x20 provider: {driver}\n\
         \x20 providerSpec: {{}}                            # whatever your driver reads\n\
         \x20 secretRef: {{name: first, namespace: default}}\n\
         \x20 ---\n\
         \x20 apiVersion: machine.sapcloud.io/v1alpha1\n\
         \x20 kind: MachineDeployment\n\
         \x20 metadata: {{name: first}}\n\
         \x20 spec:\n\
         \x20   replicas: 3\n\
         \x20   selector: {{matchLabels: {{name: first}}}}\n\
         \x20   template:\n\
         \x20     metadata: {{labels: {{name: first}}}}\n\
         \x20     spec: {{class: {{kind: MachineClass, name: first}}}}\n"
    );
    text.lines().map(str::to_owned).collect()
}
