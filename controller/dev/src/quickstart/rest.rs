//! After the steps: the commands that work beside the quick start, the tree as it changes, and programs that a user
//! killed are started again.

use super::demo::Demo;
use super::manifests::DEPLOYMENT;

impl Demo<'_> {
    /// Stays until a signal ends the process.
    pub async fn stay(&mut self) -> anyhow::Result<()> {
        let commands = self.commands();
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
    fn commands(&self) -> Vec<String> {
        let machine = self
            .seen
            .machines()
            .first()
            .map(|machine| millwright_core::api::meta::name(&machine.metadata).to_owned());
        let machine = machine.unwrap_or_else(|| "NAME".to_owned());
        let pid = self
            .programs
            .manager_pid()
            .map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
        let text = format!(
            "\n\
             It stays like this until Ctrl-C. In another terminal:\n\n\
             \x20 export KUBECONFIG={kubeconfig} PATH={bin}:$PATH\n\
             \x20 kubectl get machinedeployments,machinesets,machines,nodes\n\
             \x20 kubectl scale machinedeployment {DEPLOYMENT} --replicas=5\n\
             \x20 kubectl delete machine {machine}\n\
             \x20 millwright-provider-virtual console --connect {console} vms\n\
             \x20 millwright-provider-virtual console --connect {console} stop {machine}\n\
             \x20 kill -9 {pid}      # the manager; it is started again and carries on\n\
             \x20 curl -s http://{metrics}/metrics\n\
             \x20 grpcurl -plaintext -unix {driver} list\n",
            kubeconfig = self.programs.plane().kubeconfig().display(),
            bin = self.programs.bin().display(),
            console = self.programs.console(),
            metrics = self.programs.metrics(),
            driver = self.programs.driver().display(),
        );
        text.lines().map(str::to_owned).collect()
    }
}
