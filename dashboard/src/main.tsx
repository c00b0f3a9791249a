import './policy';
import { createRoot } from 'react-dom/client';
import { App } from './app/App';
import { Guard } from './app/Guard';
import './styles/base.css';
import './styles/list.css';
import './styles/conversation.css';
import './styles/content.css';
import './styles/player.css';

const root = document.getElementById('root');
const broken = (
  <p role="alert" className="banner warn">
    Something went wrong in this page. Nothing is lost: load it again.
  </p>
);
if (root)
  createRoot(root).render(
    <Guard instead={broken}>
      <App />
    </Guard>,
  );
